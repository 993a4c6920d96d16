# Embeds models/**.json, hardware/**.json, the programs that exports start, what of libraries is told in Python and what an HTML report is made
# of in the room `data`, so that one binary answers anywhere.
file(GLOB_RECURSE PLIMSOLL_DATA_FILES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
     ${CMAKE_CURRENT_SOURCE_DIR}/models/*.json ${CMAKE_CURRENT_SOURCE_DIR}/hardware/*.json
     ${CMAKE_CURRENT_SOURCE_DIR}/src/formats/export/templates/*.py
     ${CMAKE_CURRENT_SOURCE_DIR}/src/code/python/*.py ${CMAKE_CURRENT_SOURCE_DIR}/src/code/transformers/python/*.py
     ${CMAKE_CURRENT_SOURCE_DIR}/src/code/diffusers/python/*.py ${CMAKE_CURRENT_SOURCE_DIR}/src/code/timm/python/*.py
     ${CMAKE_CURRENT_SOURCE_DIR}/src/code/families/python/*.py
     ${CMAKE_CURRENT_SOURCE_DIR}/src/report/page/*.js ${CMAKE_CURRENT_SOURCE_DIR}/src/report/page/*.css
     ${CMAKE_CURRENT_SOURCE_DIR}/third_party/uplot/LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/third_party/uplot/*.min.*)
list(SORT PLIMSOLL_DATA_FILES)
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/shipped_files.cpp)
set(inputs ${PLIMSOLL_DATA_FILES})
list(TRANSFORM inputs PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/shipped_files.list CONTENT "${PLIMSOLL_DATA_FILES}")   # written where it changed: a file that is gone or new embeds anew
add_custom_command(
  OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR} -DLIST=${CMAKE_CURRENT_BINARY_DIR}/shipped_files.list -DOUTPUT=${embedded}
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/EmbedFiles.cmake
  DEPENDS ${inputs} ${CMAKE_CURRENT_BINARY_DIR}/shipped_files.list ${CMAKE_CURRENT_SOURCE_DIR}/cmake/EmbedFiles.cmake
  COMMENT "Embedding models/, hardware/, the exports' programs, texts of libraries and the report's page")
target_sources(plimsoll_data PRIVATE ${embedded})
