# cmake -DNAMES=list.txt -DLIBRARY=soname -DRESULT=n -DVERSION=node -DOUTPUT=file.cpp -DMAP=file.map -P Exports.cmake: a linker's map that
# exports the names of the list under that version node, or under none when it is empty, and a weak function for every name of the list. A
# function that the library's sources define takes its place; what is left returns RESULT and leaves its name in the record at its first
# call. Names for the per-thread default stream (_ptsz, _ptds) run the function they are a variant of.
cmake_minimum_required(VERSION 3.25)
file(STRINGS ${NAMES} names REGEX "^[A-Za-z_]")
set(rows "")
foreach(name IN LISTS names)
  string(REGEX REPLACE "_pt[sd][sz]$" "" base ${name})
  if(NOT base STREQUAL name AND base IN_LIST names)
    string(APPEND rows "SAME(${name}, ${base})\n")
  else()
    string(APPEND rows "NONE(${name})\n")
  endif()
endforeach()
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
list(JOIN names "; " exported)
file(WRITE ${MAP} "${VERSION} { global: ${exported}; local: *; };
")
