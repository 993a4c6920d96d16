// Where the texts of a package come from: a folder, or a wheel, which is a zip file.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace plimsoll::code {

class Package {
 public:
  virtual ~Package() = default;
  /// The text of a file by its path within the package, with '/'; nothing where there is none. Throws Error: too long, damaged.
  virtual std::optional<std::string> read(const std::string& path) const = 0;
  /// Names a file in messages.
  virtual std::string where(const std::string& path) const = 0;
};

/// A folder that holds packages, or the wheel of one. Throws Error: what is neither, what cannot be read, a damaged or hostile zip file.
std::unique_ptr<Package> open_package(const std::string& path);

/// A folder as it is.
std::unique_ptr<Package> open_folder(const std::string& path);

/// The wheel alone.
std::unique_ptr<Package> open_wheel(const std::string& path);

/// How long a text of a package may be.
inline constexpr std::size_t kMostTextBytes = std::size_t{4} << 20;

}  // namespace plimsoll::code
