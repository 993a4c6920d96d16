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
target_link_libraries(plimsoll PUBLIC fmt::fmt ZLIB::ZLIB yaml-cpp)   # zlib: gzipped traces; yaml-cpp: files of other programs

install(TARGETS plimsoll EXPORT plimsollTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/plimsoll DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT plimsollTargets NAMESPACE plimsoll:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
configure_package_config_file(cmake/plimsollConfig.cmake.in plimsollConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
write_basic_package_version_file(plimsollConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plimsollConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/plimsollConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
