/// A trace as a file that lives as long as this, plain or gzipped.
#pragma once

#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace plimsoll::trace {

class TextFile {
 public:
  explicit TextFile(const std::string& text, bool gzipped = false) {
    char name[] = "plimsoll-trace-XXXXXX";
    const int file = mkstemp(name);
    path_ = name;
    std::FILE* stream = fdopen(file, "wb");
    if (gzipped) {
      std::fclose(stream);
      const gzFile packed = gzopen(path_.c_str(), "wb");
      gzwrite(packed, text.data(), static_cast<unsigned>(text.size()));
      gzclose(packed);
    } else {
      std::fwrite(text.data(), 1, text.size(), stream);
      std::fclose(stream);
    }
  }
  ~TextFile() { std::remove(path_.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace plimsoll::trace
