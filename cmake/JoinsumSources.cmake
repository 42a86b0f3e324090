# Which source files belong to which target.

# Sets `result` to the C++ sources below the given folders. Where a folder has no_<backend>*.cpp, that file is compiled
# unless JOINSUM_BACKENDS names <backend>, and then the file of the same name less no_ in its place.
function(joinsum_sources result)
  set(sources "")
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  set(stand_ins ${sources})
  list(FILTER stand_ins INCLUDE REGEX "/no_[a-z]+[^/]*\\.cpp$")
  foreach(stand_in IN LISTS stand_ins)
    string(REGEX MATCH "/no_([a-z]+)[^/]*$" name ${stand_in})
    if(CMAKE_MATCH_1 IN_LIST JOINSUM_BACKENDS)
      list(REMOVE_ITEM sources ${stand_in})
    else()
      string(REGEX REPLACE "/no_([^/]*)$" "/\\1" backend_source ${stand_in})
      list(REMOVE_ITEM sources ${backend_source})
    endif()
  endforeach()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# Moves the kernels that call torch, {csrc,tests/cpp}/kernels/{threads,products,fusion,pairs,dense,sparse,torch_call}/, from list `all` to list `torch_side`.
function(joinsum_split_torch_kernels all torch_side)
  set(pattern "^${CMAKE_SOURCE_DIR}/(csrc|tests/cpp)/kernels/(threads|products|fusion|pairs|dense|sparse|torch_call)/")
  set(with_torch ${${all}})
  set(without_torch ${${all}})
  list(FILTER with_torch INCLUDE REGEX "${pattern}")
  list(FILTER without_torch EXCLUDE REGEX "${pattern}")
  # Each is compiled alone: most of its time goes into its own templates, whose names are those of its neighbours.
  set_source_files_properties(${with_torch} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${torch_side} ${with_torch} PARENT_SCOPE)
  set(${all} ${without_torch} PARENT_SCOPE)
endfunction()
