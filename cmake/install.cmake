# What is installed, and the files by which others find it:
#   lib/libreprise.so                     the preload, also what programs link
#   lib/reprise/                          what it opens: engine, parallel loop, private copies of their libraries, the Python packages
#   include/reprise/                      the C API and its C++ wrapper
#   lib/pkgconfig/reprise.pc, lib/cmake/reprise/
# The parts install themselves beside their targets; here are the preload, the engine and the package files.
if(REPRISE_SANITIZE)
  return()
endif()
include(CMakePackageConfigHelpers)

if(TARGET reprise)
  install(TARGETS reprise EXPORT reprise-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT reprise-targets NAMESPACE reprise:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/reprise)

  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/reprise-config.cmake.in ${CMAKE_BINARY_DIR}/reprise-config.cmake
                                INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/reprise PATH_VARS CMAKE_INSTALL_LIBDIR)
  # Before 1.0 a minor version may change the API.
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/reprise-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/reprise-config.cmake ${CMAKE_BINARY_DIR}/reprise-config-version.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/reprise)

  # Relative to the file itself, so that the whole prefix may be moved.
  file(RELATIVE_PATH REPRISE_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" REPRISE_PC_PREFIX "${REPRISE_PC_PREFIX}")
  configure_file(${CMAKE_SOURCE_DIR}/cmake/reprise.pc.in ${CMAKE_BINARY_DIR}/reprise.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/reprise.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET reprise_engine)
  install(TARGETS reprise_engine LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/reprise)
endif()
