# The installed library `plimsoll::plimsoll`: the objects of all rooms in one archive, public headers under include/plimsoll.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
add_library(plimsoll STATIC)
add_library(plimsoll::plimsoll ALIAS plimsoll)
foreach(room IN LISTS PLIMSOLL_ROOMS)
  target_sources(plimsoll PRIVATE $<TARGET_OBJECTS:plimsoll_${room}>)
endforeach()
set_target_properties(plimsoll PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(plimsoll PUBLIC cxx_std_20)
target_include_directories(plimsoll PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(plimsoll PUBLIC fmt::fmt ZLIB::ZLIB SQLite::SQLite3 yaml-cpp)   # traces: gzipped, and Nsight's; files of other programs

install(TARGETS plimsoll EXPORT plimsollTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY include/plimsoll DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT plimsollTargets NAMESPACE plimsoll:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll COMPONENT development)
configure_package_config_file(cmake/plimsollConfig.cmake.in plimsollConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
write_basic_package_version_file(plimsollConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plimsollConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/plimsollConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll COMPONENT development)

# The C function alone, for languages that load libraries (python/, plimsoll.h).
add_library(plimsoll_shared SHARED $<TARGET_OBJECTS:plimsoll_api>)
set_target_properties(plimsoll_shared PROPERTIES OUTPUT_NAME plimsoll LINKER_LANGUAGE CXX SOVERSION ${PROJECT_VERSION_MAJOR}
                      LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/plimsoll.map)
target_link_libraries(plimsoll_shared PRIVATE plimsoll)
target_link_options(plimsoll_shared PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/plimsoll.map)
if(NOT PLIMSOLL_SANITIZE)
  target_link_options(plimsoll_shared PRIVATE -static-libstdc++ -static-libgcc)   # it lives in programs with a C++ library of their own
endif()
install(TARGETS plimsoll_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_SKIP)

file(RELATIVE_PATH PLIMSOLL_PREFIX_OF_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)   # wherever the package is put
configure_file(cmake/plimsoll.pc.in plimsoll.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plimsoll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
