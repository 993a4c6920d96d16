/// What `plimsoll formula` gives, as data.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

/// Numbers by name; the name ends in the unit ("bytes_per_gpu", "seconds", "share").
using NamedNumbers = std::vector<std::pair<std::string, double>>;

struct FormulaAnswer {
  struct Row {
    std::string name;
    NamedNumbers numbers;
    std::string note = {};  ///< its source, or why it has no numbers
  };
  std::string formula;
  NamedNumbers given;
  std::vector<Row> results;
};

/// {"schema":"plimsoll/formula/1","formula","given":{…},"results":[{"name",…,"note"}]}
std::string to_json(const FormulaAnswer& answer);

}  // namespace plimsoll
