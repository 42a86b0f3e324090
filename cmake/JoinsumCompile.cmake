# Warnings, sanitizers, compiler cache and precompiled headers.

# Paths in messages (JOINSUM_CHECK prints __FILE__) start at the project's folder, on every machine.
# ccache names the sources relative to the build folder.
file(RELATIVE_PATH way_to_sources ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
string(REGEX REPLACE "/$" "" way_to_sources "${way_to_sources}")
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>
  $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${way_to_sources}/=>)

if(JOINSUM_SANITIZE STREQUAL "thread")
  # The plan side has no threads of its own: it is compiled as for a release, and found in the compiler cache.
  add_link_options(-fsanitize=thread)
elseif(JOINSUM_SANITIZE)
  set(sanitize_flags -fsanitize=${JOINSUM_SANITIZE} -fno-sanitize-recover=all)
  if(JOINSUM_SANITIZE MATCHES "address" AND JOINSUM_SANITIZE MATCHES "undefined")
    # Checks of each access to memory, which find what the address sanitizer finds, and take most of the time.
    list(APPEND sanitize_flags -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow)
  endif()
  add_compile_options(${sanitize_flags} -fno-omit-frame-pointer)
  add_link_options(${sanitize_flags})
endif()

# Where the compiler links libstdc++ statically, joinsum keeps its copy to itself: exported, it would be mixed with the
# shared one that torch loads, and errors could not be raised.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  add_link_options(LINKER:--exclude-libs,libstdc++.a)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths are hashed relative to the project, so a copy of it (a package under test) shares the cache; the sloppiness
  # is what ccache asks for with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CCACHE_PROGRAM})
endif()

# Turns on every warning that joinsum's sources are held to.
function(joinsum_strict target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow
    # Rows of tables name the fields they set and leave out the rest.
    -Wno-missing-field-initializers)
  if(JOINSUM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(JOINSUM_SANITIZE STREQUAL "thread" AND NOT target STREQUAL "joinsum_plan")
    target_compile_options(${target} PRIVATE -fsanitize=thread -O1 -g1)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # These depend on the optimiser and report correct code, std::string's above all (GCC bugs 105651, 105329, 107852).
    # `make sanitize` looks for what they would find.
    target_compile_options(${target} PRIVATE
      -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
      -Wno-error=maybe-uninitialized -Wno-error=free-nonheap-object)
    if(JOINSUM_SANITIZE AND NOT JOINSUM_SANITIZE STREQUAL "thread")
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
  endif()
endfunction()

# Precompiles headers of other projects for `target`.
function(joinsum_precompile target)
  if(NOT JOINSUM_PCH)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CCACHE_PROGRAM)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# Compiles the sources of `target` ten at a time, or as many as a second argument says: most of the time of a small file
# goes into headers that others include too. So the files of a folder may not give one name two meanings. Sources with
# options of their own, and those with SKIP_UNITY_BUILD_INCLUSION, are compiled alone. CMake's own unity builds name
# sources by absolute paths, so that a copy of the project would share nothing of the compiler's cache.
function(joinsum_compile_together target)
  if(NOT JOINSUM_UNITY)
    return()
  endif()
  set(size 10)
  if(ARGC GREATER 1)
    set(size ${ARGV1})
  endif()
  get_target_property(sources ${target} SOURCES)
  set(together "")
  foreach(source IN LISTS sources)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(source MATCHES "[.]cpp$" AND NOT alone AND NOT options)
      list(APPEND together ${source})
    endif()
  endforeach()
  set_source_files_properties(${together} PROPERTIES HEADER_FILE_ONLY ON)
  set(number 0)
  while(together)
    list(SUBLIST together 0 ${size} batch)
    list(REMOVE_ITEM together ${batch})
    list(TRANSFORM batch REPLACE "^${CMAKE_SOURCE_DIR}/(csrc|tests/cpp)/" "")
    list(TRANSFORM batch REPLACE "^(.+)$" "#include \"\\1\"")
    list(JOIN batch "\n" text)
    set(file ${CMAKE_BINARY_DIR}/together/${target}_${number}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}\n" @ONLY)
    target_sources(${target} PRIVATE ${file})
    math(EXPR number "${number} + 1")
  endwhile()
endfunction()

# Compiles the sources <prefix>_*.cpp, loops over tiles, for the instructions that their names say; which of them run is
# decided at run time. Integers wrap around, as torch's do, and a product is added to a sum in one rounding.
function(joinsum_compile_tiles prefix)
  set(instructions_avx2 -mavx2 -mfma)
  set(instructions_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)
  foreach(name portable avx2 avx512)
    set(flags -fwrapv -ffp-contract=fast)
    # Loops over vectors are loops only in unoptimised code: there they are optimised all the same.
    list(APPEND flags -O3)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
      list(APPEND flags ${instructions_${name}})
    endif()
    # Checks for undefined behaviour make a file of unrolled loops compile for minutes.
    if(JOINSUM_SANITIZE MATCHES "undefined")
      list(APPEND flags -fno-sanitize=undefined)
    endif()
    # Sanitized builds keep the vectors that the compiler's own headers leave undefined on purpose (GCC bug 105593).
    if(JOINSUM_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND flags -Wno-uninitialized)
    endif()
    set_source_files_properties(${prefix}_${name}.cpp PROPERTIES
      COMPILE_OPTIONS "${flags}"
      SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
endfunction()
