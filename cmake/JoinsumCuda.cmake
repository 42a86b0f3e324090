# Compiles the loops for GPUs where nvcc is found (CUDACXX names one that is not on the path); sets `cuda_objects` and
# `cuda_libraries`. Without nvcc the no_cuda sources stand in.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75)  # its PTX serves newer ones too
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  list(APPEND JOINSUM_BACKENDS cuda)
  add_library(joinsum_cuda OBJECT csrc/kernels/semiring/cuda_pairs.cu)
  target_include_directories(joinsum_cuda PRIVATE csrc)
  # Not every CMake knows every nvcc's option for C++20, so it is given below.
  set_target_properties(joinsum_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF)
  # Limits of types are constant functions of the host's library.
  target_compile_options(joinsum_cuda PRIVATE -std=c++20 --expt-relaxed-constexpr)
  set(cuda_objects $<TARGET_OBJECTS:joinsum_cuda>)
  set(cuda_libraries CUDA::cudart_static)
endif()
