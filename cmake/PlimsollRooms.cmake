# plimsoll_room(NAME): the static library plimsoll_NAME of all src/NAME/*.cpp. Each room links the room declared before it,
# so an include that goes against the order of the rooms does not link. A folder of a room with a CMakeLists.txt of its own is built by
# that file instead: it holds code for another machine (a stand-in device's libraries, device kernels).
set(PLIMSOLL_ROOMS "" CACHE INTERNAL "")

# Parsed once, by the first room, for all of them: two fifths of the time of a typical source are these. A source still includes what it uses.
set(PLIMSOLL_PRECOMPILED <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <set> <span> <string> <string_view>
                         <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

function(plimsoll_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${name}/*.cpp)
  file(GLOB apart CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${name}/*/CMakeLists.txt)
  foreach(lists IN LISTS apart)
    get_filename_component(folder ${lists} DIRECTORY)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
    add_subdirectory(${folder})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(plimsoll_${name} STATIC ${sources})
  plimsoll_unity(plimsoll_${name})
  set_target_properties(plimsoll_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(plimsoll_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(plimsoll_${name} PUBLIC fmt::fmt PRIVATE plimsoll_compiler nlohmann_json::nlohmann_json Boost::headers)
  if(NOT PLIMSOLL_ROOMS)
    target_precompile_headers(plimsoll_${name} PRIVATE ${PLIMSOLL_PRECOMPILED})
  else()
    list(GET PLIMSOLL_ROOMS 0 first)
    target_precompile_headers(plimsoll_${name} REUSE_FROM plimsoll_${first})
  endif()
  if(PLIMSOLL_ROOMS)
    list(GET PLIMSOLL_ROOMS -1 above)
    target_link_libraries(plimsoll_${name} PUBLIC plimsoll_${above})
  endif()
  set(PLIMSOLL_ROOMS ${PLIMSOLL_ROOMS} ${name} CACHE INTERNAL "")
endfunction()
