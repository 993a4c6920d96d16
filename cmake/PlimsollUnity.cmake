# plimsoll_unity(TARGET): where PLIMSOLL_UNITY is on, the target's sources are compiled in groups (unity_groups.py says which may be together).
# Half the work of a build from nothing, where headers and templates that sources share are read and instantiated once per group; but an edit
# compiles its whole group, so whoever changes code leaves it off.
option(PLIMSOLL_UNITY "Compile sources in groups: a build from nothing in half the time, an edit in several times its time" OFF)
set(PLIMSOLL_UNITY_LINES 4000)   # of a group: about eight seconds of one core
if(PLIMSOLL_UNITY)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

function(plimsoll_unity target)
  if(NOT PLIMSOLL_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM sources REPLACE "^([^/])" "${CMAKE_CURRENT_SOURCE_DIR}/\\1")
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py ${PLIMSOLL_UNITY_LINES} ${sources}
                  OUTPUT_VARIABLE rows COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" rows "${rows}")
  foreach(row IN LISTS rows)
    string(REGEX MATCH "^([0-9]+) (.*)$" row "${row}")
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # -Wno-subobject-linkage: it takes every source of a group for a header. ggc-min-heapsize (KiB): a group is compiled in half a gigabyte to 1.3;
  # g++ collects its garbage from 128 MiB on, which takes an eighth of its time and gives back a fifth of the memory.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;--param=ggc-min-heapsize=1000000>)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})   # a new name may need another group
endfunction()
