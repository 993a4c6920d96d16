# cmake -DNAMES=list.txt -DLIBRARY=soname -DRESULT=n -DOUTPUT=file.cpp -DMAP=file.map -P Exports.cmake
#
# A list has one name a line; "<node>" starts the names of a version node, each node built on the one before. Written are a linker's map that
# exports these names and no other, and a weak function for each: a function that the library's sources define takes its place; what is
# left returns RESULT and leaves its name in the record at its first call. Names for the per-thread default stream (_ptsz, _ptds, _spt)
# run the function they are a variant of.
cmake_minimum_required(VERSION 3.25)
file(STRINGS ${NAMES} lines REGEX "^[A-Za-z_<]")
set(rows "")
set(map "")
set(open "")
set(above "")
foreach(line IN LISTS lines)
  if(line MATCHES "^<(.*)>$")
    if(open)
      string(APPEND map "} ${above};\n")
      set(above ${open})
    endif()
    set(open ${CMAKE_MATCH_1})
    string(APPEND map "${open} {\n global:\n")
    continue()
  endif()
  if(NOT map)
    string(APPEND map "{\n global:\n")
  endif()
  string(APPEND map "  ${line};\n")
  string(REGEX REPLACE "_(pt[sd][sz]|spt)$" "" base ${line})
  if(NOT base STREQUAL line AND base IN_LIST lines)
    string(APPEND rows "SAME(${line}, ${base})\n")
  else()
    string(APPEND rows "NONE(${line})\n")
  endif()
endforeach()
file(WRITE ${MAP} "${map} local:\n  *;\n} ${above};\n")
file(WRITE ${OUTPUT} "// Generated from ${NAMES}.
#include \"rehearse/device/core/work.hpp\"

namespace {
long answer(bool& told, const char* name) {
  if (!told) {
    told = true;
    plimsoll::device::unmodelled(name, \"${LIBRARY}\");
  }
  return ${RESULT};
}
}  // namespace

#if defined(__aarch64__)
#define JUMP \"b\"
#define TARGET(name) #name
#else
#define JUMP \"jmp\"
#define TARGET(name) #name \"@PLT\"
#endif
#define NONE(name)                                                                      \\
  extern \"C\" __attribute__((weak, visibility(\"default\"))) long name() {                 \\
    static bool told = false;                                                           \\
    return answer(told, #name);                                                         \\
  }
#define SAME(name, base) \\
  asm(\".text\\n.weak \" #name \"\\n.type \" #name \",@function\\n\" #name \": \" JUMP \" \" TARGET(base) \"\\n.size \" #name \", .-\" #name \"\\n\");

${rows}")
