# joinsum_find_torch([REQUIRED]) defines
#   joinsum::torch         libtorch, its headers and its ABI
#   joinsum::torch_python  the same and what a Python module needs (torch's own pybind11 headers among it)
#   JOINSUM_TORCH_FOUND_ROOT, JOINSUM_TORCH_VERSION
#
# It stands in for find_package(Torch), which asks for the CUDA toolkit when torch was built for CUDA; joinsum compiles
# no CUDA code against it and works with the run-time packages alone.
#
# Looked in, in this order: JOINSUM_TORCH_ROOT; Torch_DIR; the torch of Python_EXECUTABLE; JOINSUM_TORCH_HINTS;
# CMAKE_PREFIX_PATH. Installed beside joinsumConfig.cmake.

# Sets `result` to the root of the torch package that `python` would import, without importing it.
function(joinsum_torch_of_python python result)
  execute_process(
    COMMAND ${python} -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${root}" PARENT_SCOPE)
endfunction()

# Sets `result` to the first root that holds torch's headers, or to "".
function(joinsum_torch_root result)
  set(roots ${JOINSUM_TORCH_ROOT})
  if(Torch_DIR)  # <root>/share/cmake/Torch
    list(APPEND roots ${Torch_DIR}/../../..)
  endif()
  if(Python_EXECUTABLE)
    joinsum_torch_of_python(${Python_EXECUTABLE} python_root)
    list(APPEND roots ${python_root})
  endif()
  list(APPEND roots ${JOINSUM_TORCH_HINTS})
  set(prefixes ${CMAKE_PREFIX_PATH})
  if(DEFINED ENV{CMAKE_PREFIX_PATH})
    string(REPLACE ":" ";" environment_prefixes "$ENV{CMAKE_PREFIX_PATH}")
    list(APPEND prefixes ${environment_prefixes})
  endif()
  foreach(prefix IN LISTS prefixes)  # a LibTorch, torch.utils.cmake_prefix_path, or a site-packages folder
    list(APPEND roots ${prefix} ${prefix}/../.. ${prefix}/torch)
  endforeach()
  foreach(root IN LISTS roots)
    if(EXISTS ${root}/include/torch/headeronly/version.h)
      get_filename_component(root ${root} ABSOLUTE)
      set(${result} ${root} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

# Sets `result` to torch's version, as in 2.13.0.
function(joinsum_torch_version root result)
  set(parts "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${root}/include/torch/headeronly/version.h line REGEX "#define TORCH_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND parts ${number})
  endforeach()
  list(JOIN parts "." text)
  set(${result} ${text} PARENT_SCOPE)
endfunction()

# Defines joinsum::lib<name> for the shared library lib<name>.so of torch.
function(joinsum_torch_library root name)
  add_library(joinsum::lib${name} SHARED IMPORTED GLOBAL)
  set_target_properties(joinsum::lib${name} PROPERTIES
    IMPORTED_LOCATION ${root}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}${name}${CMAKE_SHARED_LIBRARY_SUFFIX})
endfunction()

function(joinsum_define_torch_targets root)
  foreach(name c10 torch_cpu torch)
    joinsum_torch_library(${root} ${name})
  endforeach()
  add_library(joinsum::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(joinsum::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
    # Every torch since 2.7 is built with the C++11 ABI.
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1;USE_DISTRIBUTED"
    # libtorch.so has no symbol of its own; where torch was built for CUDA it loads that part.
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed"
    INTERFACE_LINK_LIBRARIES "joinsum::libtorch;joinsum::libtorch_cpu;joinsum::libc10")
  if(EXISTS ${root}/lib/libtorch_python.so)
    joinsum_torch_library(${root} torch_python)
    add_library(joinsum::torch_python INTERFACE IMPORTED GLOBAL)
    set_target_properties(joinsum::torch_python PROPERTIES
      INTERFACE_LINK_LIBRARIES "joinsum::libtorch_python;joinsum::torch")
  endif()
endfunction()

macro(joinsum_find_torch)
  joinsum_torch_root(JOINSUM_TORCH_FOUND_ROOT)
  if(JOINSUM_TORCH_FOUND_ROOT)
    joinsum_torch_version(${JOINSUM_TORCH_FOUND_ROOT} JOINSUM_TORCH_VERSION)
    if(NOT TARGET joinsum::torch)
      joinsum_define_torch_targets(${JOINSUM_TORCH_FOUND_ROOT})
    endif()
  elseif("${ARGN}" STREQUAL "REQUIRED")
    message(FATAL_ERROR
      "joinsum: torch not found. Install it for ${Python_EXECUTABLE} (pip install torch), or name its folder with "
      "-DJOINSUM_TORCH_ROOT=..., or with -DCMAKE_PREFIX_PATH=... as torch.utils.cmake_prefix_path prints it. "
      "The algebra alone builds without torch: -DJOINSUM_PLAN_ONLY=ON.")
  endif()
endmacro()
