# Everything goes below joinsum/, so that the prefix can be a site-packages folder: joinsum/lib, joinsum/include and
# joinsum/share/cmake/joinsum, beside the Python files.
include(CMakePackageConfigHelpers)

set(config_folder joinsum/share/cmake/joinsum)
install(TARGETS joinsum_core EXPORT joinsumTargets LIBRARY DESTINATION joinsum/lib)
install(EXPORT joinsumTargets NAMESPACE joinsum:: DESTINATION ${config_folder})
install(DIRECTORY csrc/ DESTINATION joinsum/include/joinsum
  FILES_MATCHING PATTERN "*.h" PATTERN "bindings" EXCLUDE)

configure_package_config_file(cmake/joinsumConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/joinsumConfig.cmake
  INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/joinsumConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/joinsumConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/joinsumConfigVersion.cmake
  cmake/JoinsumTorch.cmake
  DESTINATION ${config_folder})

if(TARGET _C)
  install(TARGETS _C LIBRARY DESTINATION joinsum)
endif()

# torch's C++ interface changes between minor versions, so the package remembers which one it was built with.
file(CONFIGURE OUTPUT _built_with.py CONTENT "TORCH_VERSION = \"@JOINSUM_TORCH_VERSION@\"\n" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_built_with.py DESTINATION joinsum)
