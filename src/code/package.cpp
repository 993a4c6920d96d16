#include "code/package.hpp"

#include <filesystem>
#include <fstream>

#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

class FolderPackage final : public Package {
 public:
  explicit FolderPackage(std::filesystem::path root) : root_(std::move(root)) {}

  std::optional<std::string> read(const std::string& path) const override {
    const std::filesystem::path file = root_ / path;
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) return {};
    const auto size = std::filesystem::file_size(file, error);
    if (error) fail("cannot be read: " + error.message(), where(path));
    if (size > kMostTextBytes) fail("is longer than " + std::to_string(kMostTextBytes >> 20) + " MiB", where(path));
    std::ifstream stream(file, std::ios::binary);
    std::string text(size, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(size));
    if (!stream) fail("cannot be read", where(path));
    return text;
  }

  std::string where(const std::string& path) const override { return (root_ / path).string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace

std::unique_ptr<Package> open_folder(const std::string& path) { return std::make_unique<FolderPackage>(path); }

std::unique_ptr<Package> open_package(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    // The package's own folder means the one around it, where its name is found.
    std::filesystem::path root(path);
    if (root.filename().empty()) root = root.parent_path();
    const bool is_package = std::filesystem::is_regular_file(root / "__init__.py", error);
    return std::make_unique<FolderPackage>(is_package ? std::filesystem::absolute(root).parent_path() : root);
  }
  if (!std::filesystem::exists(path, error)) fail("is not there", path, "a folder with a package, its wheel, or FILE:CLASS");
  return open_wheel(path);
}

}  // namespace plimsoll::code
