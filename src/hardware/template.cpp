// Files of one's own hardware to begin with: a shipped one with every number marked as assumed, and what it is beside it.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/machine.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

/// What a number is, by the end of its path.
struct Remark {
  std::string_view path, what;
};

constexpr std::array<Remark, 39> kRemarks{{
    {"/memory/nominal", "what the sheet says"},
    {"/memory/usable", "what the driver reports to a process as the total (torch.cuda.mem_get_info)"},
    {"/memory/bandwidth", "the sheet's"},
    {"/memory/efficiency", "what kernels that stream reach of the bandwidth; plimsoll calibrate measures it"},
    {"/memory/last_level_cache", "the L2 cache, or what lies between it and memory"},
    {"/compute/threads_per_unit", "that a unit (SM, CU) holds at a time"},
    {"/compute/shared_memory", "that one block of threads can have"},
    {"/compute/clock", "at which the peaks are stated"},
    {"/peak", "dense, added up in fp32"},
    {"/sustained", "what large products hold of the peak inside a step, at the board's power"},
    {"/gemm/start", "of a product's kernel on the device"},
    {"/gemm/reduction", "of the kernel that adds the parts of a product split along k"},
    {"/gemm/power_elsewhere", "what a step draws outside its products, in board powers"},
    {"/gemm/second_wave", "share of a product's time that its last blocks take where a collective held their units"},
    {"/convolution/forward", "what a convolution reaches of the rate of the product that does the same arithmetic"},
    {"/start", "launch on the device, filling the pipeline, the last store"},
    {"/feed", "bytes of operands that a unit takes in"},
    {"/store", "bytes of results that a unit writes while its main loop waits"},
    {"/attention/forward", "share of the sustained rate, heads of 128"},
    {"/attention/backward", "share of the sustained rate, heads of 128"},
    {"/attention/power", "what attention draws at the boost clock, in board powers"},
    {"/overheads/context", "of a process, outside its tensors: nvidia-smi or rocm-smi beside an empty context"},
    {"/overheads/blas_workspace", "that the first product of a stream takes"},
    {"/overheads/first_communicator", "bytes of the first process group"},
    {"/overheads/further_communicator", "bytes of each further one"},
    {"/power", "the board's, or of products what they draw in board powers"},
    {"/bandwidth", "of a direction, the sheet's"},
    {"/achieved", "of a direction, what transfers reach"},
    {"/latency", "of a hop"},
    {"/host_memory_bandwidth", "of all processes of the node together"},
    {"/host_memory", "of one host (gpus_per_host GPUs): free -b; leave it out where it is not known"},
    {"/contention/memory_bound", "how much longer such kernels take while a collective runs"},
    {"/contention/communication", "how much longer a collective takes while kernels run"},
    {"/collectives/ring", "bus bandwidth of the library's ring over the node"},
    {"/collectives/all_to_all", "bus bandwidth of one on one node"},
    {"/collectives/network_all_to_all", "share of the NICs that one across nodes reaches"},
    {"/collectives/nvls", "bus bandwidth of reductions in the switch; leave it out where there are none"},
    {"/collectives/launch", "of a collective"},
    {"/collectives/pipeline", "of a collective's first bytes through all hops"},
}};

bool ends_with(std::string_view text, std::string_view end) { return text.size() >= end.size() && text.substr(text.size() - end.size()) == end; }

std::string_view remark_on(std::string_view path) {
  for (const Remark& remark : kRemarks)
    if (ends_with(path, remark.path)) return remark.what;
  return {};
}

/// Measured curves are of the device that they were measured on.
bool is_measured(const std::string& key) {
  constexpr std::array<std::string_view, 6> kCurves{"gemm_curves", "measurements", "streaming", "gemm_times", "all_reduce", "reduce_scatter"};
  return std::find(kCurves.begin(), kCurves.end(), key) != kCurves.end();
}

void assume_all(Json& json, const std::string& path) {
  if (json.is_array()) {
    for (Json& each : json) assume_all(each, path);
    return;
  }
  if (!json.is_object()) return;
  if (json.contains("provenance")) {
    json["provenance"] = "assumed";
    json["source"] = "template";
    json.erase("note");
    if (const std::string_view what = remark_on(path); !what.empty()) json["note"] = what;
    return;
  }
  for (auto& [key, member] : json.items()) {
    if (key == "tiles_source") member = "template";
    else assume_all(member, path + "/" + key);
  }
}

/// The shipped file with everything that is its own replaced by what stands in for another's.
std::string template_of(const std::string& path, const std::string& name, const std::string& like, const std::string& title) {
  const auto* file = data::find_shipped_file(path);
  if (file == nullptr) fail("there is no shipped file " + path);
  Json json = Json::parse(file->text);
  for (auto at = json.begin(); at != json.end();) at = is_measured(at.key()) ? json.erase(at) : std::next(at);
  if (json.contains("node") && json["node"].is_object())
    for (const char* curves : {"all_reduce", "reduce_scatter", "measured"}) json["node"]["collectives"].erase(curves);
  json.erase("note");
  json["name"] = name;
  json["title"] = title;
  assume_all(json, "");
  json["sources"] = {{"template", "values of " + like + " that stand in until this file has its own, each with where it was read: measured, calibrated, derived or datasheet in the place of assumed"}};
  return json.dump(2) + "\n";
}

}  // namespace

std::string hardware_template(const std::string& kind, const std::string& on) {
  const std::string like = on.empty() ? "h100-sxm" : on;
  if (kind == "gpu") {
    const Accelerator device = load_accelerator(like);
    return template_of("hardware/accelerators/" + device.name + ".json", "my-gpu", device.name, "A device like " + device.title);
  }
  if (kind != "cluster") fail("there is no template '" + kind + "'", "--template", suggest(kind, {"gpu", "cluster"}));
  const Cluster cluster = parse_cluster(like);
  Json json = Json::parse(template_of("hardware/clusters/" + cluster.accelerator.node + ".json", "my-cluster", cluster.accelerator.node,
                                      "Nodes like " + cluster.accelerator.node));
  json["accelerator"] = cluster.accelerator.name;
  json["nodes"] = std::max<std::int64_t>(cluster.nodes, 1);
  return json.dump(2) + "\n";
}

}  // namespace plimsoll
