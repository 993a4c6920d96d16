#include <nlohmann/json.hpp>

#include "data/shipped_files.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/report.hpp"
#include "report/json_text.hpp"

namespace plimsoll {

std::string hardware_json(const std::string& name) {
  if (name.empty())
    return json_text({{"schema", "plimsoll/hardware/1"}, {"accelerators", shipped_accelerators()}, {"clusters", shipped_clusters()}});
  if (const auto* cluster = data::find_shipped_file("hardware/clusters/" + name + ".json")) return std::string(cluster->text);
  const Accelerator device = load_accelerator(name);  // by its aliases too; throws for what is unknown
  const auto* file = data::find_shipped_file("hardware/accelerators/" + device.name + ".json");
  if (file == nullptr) fail("this is a file of your own, JSON already", name);
  return std::string(file->text);
}

}  // namespace plimsoll
