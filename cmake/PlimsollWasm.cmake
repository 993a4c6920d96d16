# The libraries of the browser build. Debian's are for this machine: their headers serve, fmt's and yaml-cpp's code is compiled anew.
set(headers ${CMAKE_BINARY_DIR}/headers)   # never all of /usr/include, whose C library is another one
file(MAKE_DIRECTORY ${headers})
foreach(library nlohmann boost fmt yaml-cpp toml++)
  find_path(place_of_${library} NAMES ${library} PATHS /usr/include /usr/local/include NO_CMAKE_FIND_ROOT_PATH NO_DEFAULT_PATH REQUIRED)
  file(CREATE_LINK ${place_of_${library}}/${library} ${headers}/${library} SYMBOLIC)
endforeach()

add_library(plimsoll_headers INTERFACE)
target_include_directories(plimsoll_headers SYSTEM INTERFACE ${headers})
target_compile_definitions(plimsoll_headers INTERFACE JSON_HAS_RANGES=0)   # libc++ 13 has none
add_library(nlohmann_json::nlohmann_json ALIAS plimsoll_headers)
add_library(Boost::headers ALIAS plimsoll_headers)

add_library(plimsoll_fmt STATIC ${CMAKE_CURRENT_SOURCE_DIR}/src/wasm/fmt.cpp)
target_link_libraries(plimsoll_fmt PUBLIC plimsoll_headers)
add_library(fmt::fmt ALIAS plimsoll_fmt)

# yaml-cpp's parser of events, as version 0.7 has it; no nodes, no emitter.
file(GLOB yaml_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/third_party/yaml-cpp/src/*.cpp)
add_library(yaml-cpp STATIC ${yaml_sources})
target_link_libraries(yaml-cpp PUBLIC plimsoll_headers)

add_compile_options(-fwasm-exceptions)
add_link_options(-fwasm-exceptions)
