# plimsoll_room(NAME [COLD]): the static library plimsoll_NAME of all src/NAME/*.cpp. Each room links the room declared before it,
# so an include that goes against the order of the rooms does not link. A folder of a room with a CMakeLists.txt of its own is built by
# that file instead: it holds code for another machine (a stand-in device's libraries, device kernels).
# COLD: a room that is as fast at -O1, for what its time goes through is hot (below). A build from nothing (PLIMSOLL_UNITY) takes that, a quarter
# of its time less.
set(PLIMSOLL_ROOMS "" CACHE INTERNAL "")
set(PLIMSOLL_COLD_ROOM "" CACHE INTERNAL "")   # the first, whose precompiled header the others take: it must be compiled as they are

# Parsed once, by the first room, for all of them: two fifths of the time of a typical source are these. A source still includes what it uses.
set(PLIMSOLL_PRECOMPILED <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <set> <span> <string> <string_view>
                         <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

# The precompiled header of a target that is not hot, and how it is compiled.
function(plimsoll_cold target)
  if(PLIMSOLL_UNITY)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(PLIMSOLL_COLD_ROOM)
    target_precompile_headers(${target} REUSE_FROM ${PLIMSOLL_COLD_ROOM})
  else()
    target_precompile_headers(${target} PRIVATE ${PLIMSOLL_PRECOMPILED})
    set(PLIMSOLL_COLD_ROOM ${target} CACHE INTERNAL "")
  endif()
endfunction()

function(plimsoll_room name)
  cmake_parse_arguments(PARSE_ARGV 1 it "COLD" "" "")
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
  if(it_COLD AND PLIMSOLL_UNITY)
    plimsoll_cold(plimsoll_${name})
  elseif(NOT PLIMSOLL_ROOMS)
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

# Sources that most of an answer's time goes through.
function(plimsoll_hot)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> SKIP_PRECOMPILE_HEADERS ON)
endfunction()
