# What `cmake --install` lays where, and what `cpack` packs.
#
#   component    Debian package    what
#   command      trapline          the command, its man page
#   library      libtrapline0      libtrapline.so.0; needs the command, its helper
#   development  libtrapline-dev   headers, libtrapline.so, CMake's and pkg-config's files
#
# Everything is found relative to where it lies, so that a prefix may be moved and a package unpacked anywhere.

include(CMakePackageConfigHelpers)

install(TARGETS trapline RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
install(FILES docs/trapline.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)

install(TARGETS libtrapline EXPORT trapline-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/trapline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/trapline)
configure_package_config_file(cmake/trapline-config.cmake.in ${PROJECT_BINARY_DIR}/package/trapline-config.cmake
  INSTALL_DESTINATION ${cmake_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/trapline-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/trapline-config.cmake
              ${PROJECT_BINARY_DIR}/package/trapline-config-version.cmake
  DESTINATION ${cmake_folder} COMPONENT development)
install(EXPORT trapline-targets NAMESPACE trapline:: DESTINATION ${cmake_folder} COMPONENT development)

file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
configure_file(cmake/trapline.pc.in ${PROJECT_BINARY_DIR}/package/trapline.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/trapline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

foreach(package trapline libtrapline0 libtrapline-dev)
  set(component command)
  if(package STREQUAL "libtrapline0")
    set(component library)
  elseif(package STREQUAL "libtrapline-dev")
    set(component development)
  endif()
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright COMPONENT ${component})
endforeach()

# Debian packages.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trapline)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Trapline authors <trapline@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL command library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME trapline)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION devel)
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "DTrace for the processes one owns, without root
D programs are compiled to machine code, which is mapped into a running process
and reached by a jump. This is the command, which is also the library's helper.")

# What the library and the command say to each other has a version of its own, but one source.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libtrapline0)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "trapline (>= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "tracing with D from within a program
Traces the calling process or another one, and gives aggregations and records
as values. It starts the command trapline as its helper.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtrapline-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libtrapline0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "headers of libtrapline
C and C++ headers, helpers for unit tests, and what CMake and pkg-config need to
build programs with libtrapline.")
include(CPack)
