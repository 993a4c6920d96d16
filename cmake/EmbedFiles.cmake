# cmake -DSOURCE=dir -DLIST=file -DOUTPUT=file.cpp -P EmbedFiles.cmake: one sorted table of (path, text).
file(READ ${LIST} files)
set(rows "")
foreach(path IN LISTS files)
  file(READ ${SOURCE}/${path} text)
  string(APPEND rows "    {\"${path}\"sv, R\"plimsoll(${text})plimsoll\"sv},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from models/ and hardware/.
#include \"data/shipped_files.hpp\"

namespace plimsoll::data {
namespace {
using namespace std::string_view_literals;  // no constant expression has to count the characters
constexpr ShippedFile kFiles[] = {
${rows}};
}  // namespace

const ShippedFile* shipped_files_begin() { return kFiles; }
const ShippedFile* shipped_files_end() { return kFiles + sizeof(kFiles) / sizeof(kFiles[0]); }
}  // namespace plimsoll::data
")
