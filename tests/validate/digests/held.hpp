// What is held of a prediction: one line of text each, in the files of tests/validate/held.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "validate/digests/program_digest.hpp"

namespace plimsoll::digests {

/// How an answer was reached. From `played` on it gets worse.
enum class Outcome : std::uint8_t {
  played,
  closed_form,
  refused,     ///< by name: not modelled
  impossible,  ///< what was said contradicts itself, or the framework fails on it
  defect,      ///< an error of plimsoll's own
};
Outcome outcome_of(const Report& report);
Outcome outcome_of(const Error& error);

/// What one line says.
struct Held {
  std::string id;
  Outcome outcome = Outcome::played;
  /// Of a measured row: by how much each quantity is off, predicted minus measured, where it is off at all. Of a drawn strategy: the bytes
  /// themselves.
  std::map<std::string, std::int64_t> figures;
  Parts parts;
};

/// "ID <tab> played <tab> reserved_bytes+512 <tab> 1f0e23aa:12ab34cd… <tab> -": outcome, figures, then each part's hash and its labels'.
std::string line_of(const Held& held);
/// Throws std::runtime_error, naming the line.
Held parse_line(const std::string& line);

/// The lines of a file by id, in its order; none where there is no file.
class HeldFile {
 public:
  explicit HeldFile(const std::string& path);
  /// nullptr: it has no such line.
  const Held* of(const std::string& id) const;
  const std::vector<Held>& lines() const { return lines_; }

 private:
  std::vector<Held> lines_;
  std::map<std::string, std::size_t> index_;
};

/// What the figures of a file mean.
enum class Figures : std::uint8_t { errors, values };

/// Where two programs part first.
struct Difference {
  std::string part;        ///< "step"; empty: they are alike
  std::string label;       ///< the first module that does something else; empty: each does the same, in another order among them
  std::size_t labels = 0;  ///< modules of that part that differ
};
Difference first_difference(const Parts& held, const Parts& now);

/// Sentences on what is worse than what is held: an outcome, an error that grew. Of drawn strategies nothing is.
std::vector<std::string> what_is_worse(const Held& held, const Held& now, Figures figures);
/// Sentences on everything else that is not as it is held; empty: all is.
std::vector<std::string> what_moved(const Held& held, const Held& now, Figures figures);

}  // namespace plimsoll::digests
