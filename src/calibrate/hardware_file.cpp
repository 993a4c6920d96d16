// The file of a cluster with its device inside (docs/hardware.md), written so that reading it back gives the same numbers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plimsoll/calibrate.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::string shown(Bytes bytes) { return fmt::format("{} B", bytes.count); }
std::string shown(BytesPerSecond rate) { return fmt::format("{:.10g} GB/s", rate.value / 1e9); }
std::string shown(FlopsPerSecond rate) { return fmt::format("{:.10g} TFLOP/s", rate.value / 1e12); }
std::string shown(Seconds time) { return fmt::format("{:.10g} us", time.value * 1e6); }
std::string shown(Hertz clock) { return fmt::format("{:.10g} MHz", clock.value / 1e6); }
std::string shown(Watts power) { return fmt::format("{:.10g} W", power.value); }
double shown(double share) { return share; }
std::int64_t shown(std::int64_t count) { return count; }

template <class T>
Json sourced(const Sourced<T>& value) {
  return {{"value", shown(value.value)}, {"provenance", name_of(value.provenance)}, {"source", value.source}};
}

Json rounded_us(Seconds time) { return Json::parse(fmt::format("{:.9g}", time.value * 1e6)); }

Json sources_object(const std::vector<Accelerator::Source>& own, const std::vector<Accelerator::Source>& further = {}) {
  Json object = Json::object();
  for (const auto* list : {&own, &further})
    for (const auto& source : *list)
      if (!object.contains(source.key)) object[source.key] = source.text;
  return object;
}

Json memory_object(const Accelerator& device) {
  return {{"type", device.memory_type},
          {"nominal", sourced(device.memory_nominal)},
          {"usable", sourced(device.memory_usable)},
          {"bandwidth", sourced(device.memory_bandwidth)},
          {"efficiency", sourced(device.memory_efficiency)},
          {"last_level_cache", sourced(device.last_level_cache)}};
}

Json compute_object(const Accelerator& device) {
  Json rates = Json::object();
  for (const ComputeRate& rate : device.rates)
    rates[std::string(name_of(rate.type))] = {{"peak", sourced(rate.peak)}, {"sustained", sourced(rate.sustained)}};
  Json object{{"units", device.compute_units}, {"dies", device.dies}, {"clock", sourced(device.clock)}, {"rates", rates}};
  if (device.threads_per_unit.value > 0) object["threads_per_unit"] = sourced(device.threads_per_unit);
  if (device.shared_memory.value > Bytes(0)) object["shared_memory"] = sourced(device.shared_memory);
  return object;
}

Json family_object(const ProductKernels& family) {
  Json tiles = Json::array(), rates = Json::array();
  for (const Tile& tile : family.tiles) tiles.push_back(fmt::format("{}x{}", tile.m, tile.n));
  for (const ProductKernels::Rate& rate : family.rates) {
    Json object{{"type", name_of(rate.type)}};
    for (const Scaling scaling : rate.scalings) object["scalings"].push_back(name_of(scaling));
    object["share"] = sourced(rate.share);
    rates.push_back(std::move(object));
  }
  Json object{{"name", family.name}, {"alignment", family.alignment}};
  if (!family.layouts.empty()) object["layouts"] = family.layouts;
  if (family.grouped) object["grouped"] = true;
  if (family.one_block_per_unit) object["one_block_per_unit"] = true;
  object.update({{"tiles", tiles},
                 {"tiles_source", family.tiles_source},
                 {"tiles_per_unit", family.tiles_per_unit},
                 {"start", sourced(family.start)},
                 {"feed", sourced(family.feed)},
                 {"store", sourced(family.store)},
                 {"power", sourced(family.power)},
                 {"rates", rates}});
  if (family.drain.value > BytesPerSecond()) object["drain"] = sourced(family.drain);
  return object;
}

Json gemm_object(const Accelerator& device) {
  const ProductConstants& gemm = device.gemm;
  Json families = Json::array();
  for (const ProductKernels& family : gemm.kernels) families.push_back(family_object(family));
  Json object{{"start", sourced(gemm.start)},
              {"reduction", sourced(gemm.reduction)},
              {"power_elsewhere", sourced(gemm.power_elsewhere)},
              {"kernels", families},
              {"convolution",
               {{"forward", sourced(gemm.convolution.forward)},
                {"input_gradient", sourced(gemm.convolution.input_gradient)},
                {"weight_gradient", sourced(gemm.convolution.weight_gradient)}}}};
  if (gemm.second_wave.value > 0) object["second_wave"] = sourced(gemm.second_wave);
  return object;
}

Json streaming_array(const Accelerator& device) {
  Json list = Json::array();
  for (const StreamingCurve& curve : device.streaming) {
    Json points = Json::array();
    for (const auto& point : curve.points) points.push_back(Json::array({point.bytes.count, rounded_us(point.time)}));
    list.push_back({{"kernels", curve.kernels},
                    {"provenance", name_of(curve.provenance)},
                    {"source", curve.source},
                    {"points_unit", {"B", "us"}},
                    {"points", points}});
  }
  return list;
}

Json gemm_times_array(const Accelerator& device) {
  Json list = Json::array();
  for (const GemmTimes& times : device.gemm_times) {
    Json points = Json::array();
    for (const auto& point : times.points) {
      points.push_back(Json::array({point.m, point.n, point.k, point.batch, rounded_us(point.time)}));
      if (!point.layout.empty()) points.back().push_back(point.layout);
    }
    list.push_back({{"type", name_of(times.type)},
                    {"provenance", name_of(times.provenance)},
                    {"source", times.source},
                    {"points_unit", {"m", "n", "k", "batch", "us", "layout"}},
                    {"points", points}});
  }
  return list;
}

Json gemm_curves_array(const Accelerator& device) {
  Json list = Json::array();
  for (const GemmCurve& curve : device.gemm_curves) {
    Json points = Json::array();
    for (const GemmPoint& point : curve.points) points.push_back(Json::array({point.m, point.n, point.k, point.rate.value / 1e12}));
    list.push_back({{"type", name_of(curve.type)},
                    {"provenance", name_of(curve.provenance)},
                    {"software", curve.software},
                    {"source", curve.source},
                    {"points_unit", {"m", "n", "k", "TFLOP/s"}},
                    {"points", points}});
  }
  return list;
}

Json measurements_array(const Accelerator& device) {
  Json list = Json::array();
  for (const Measurement& measurement : device.measurements) {
    Json values = Json::object();
    for (const auto& [key, value] : measurement.values) values[key] = value;
    list.push_back({{"what", measurement.what},
                    {"provenance", name_of(measurement.provenance)},
                    {"note", measurement.note},
                    {"values", values},
                    {"source", measurement.source}});
  }
  return list;
}

Json attention_object(const AttentionConstants& attention) {
  Json object{{"forward", sourced(attention.forward)}, {"backward", sourced(attention.backward)}};
  if (attention.power.value > 0) object["power"] = sourced(attention.power);
  return object;
}

/// Empty where no trace told any.
Json paces_object(const KernelPaces& paces) {
  Json object = Json::object();
  const auto put = [&](const char* key, const Sourced<double>& pace) {
    if (!pace.source.empty()) object[key] = sourced(pace);
  };
  put("issue", paces.issue);
  put("attention_forward", paces.attention_forward);
  put("attention_backward", paces.attention_backward);
  return object;
}

Json accelerator_object(const Accelerator& device) {
  Json object{{"name", device.name},
              {"title", device.title},
              {"vendor", device.vendor},
              {"family", device.family},
              {"target", device.target},
              {"launch_year", device.launch_year},
              {"node", device.node},
              {"note", device.note},
              {"memory", memory_object(device)},
              {"compute", compute_object(device)},
              {"gemm", gemm_object(device)}};
  object["attention"] = attention_object(device.attention);
  if (Json paces = paces_object(device.paces); !paces.empty()) object["paces"] = std::move(paces);
  object["overheads"] = {{"context", sourced(device.overheads.context)},
                         {"blas_workspace", sourced(device.overheads.blas_workspace)},
                         {"first_communicator", sourced(device.overheads.first_communicator)},
                         {"further_communicator", sourced(device.overheads.further_communicator)}};
  if (device.power.value.value > 0) object["power"] = sourced(device.power);
  if (!device.streaming.empty()) object["streaming"] = streaming_array(device);
  if (!device.gemm_times.empty()) object["gemm_times"] = gemm_times_array(device);
  object["gemm_curves"] = gemm_curves_array(device);
  object["measurements"] = measurements_array(device);
  object["sources"] = sources_object(device.sources);
  return object;
}

Json link_object(const Link& link) {
  return {{"bandwidth", sourced(link.bandwidth)}, {"achieved", sourced(link.achieved)}, {"latency", sourced(link.latency)}};
}

Json by_nodes(const Sourced<BytesPerSecond> (&values)[3]) {
  return Json::array({sourced(values[0]), sourced(values[1]), sourced(values[2])});
}

bool given(const Sourced<BytesPerSecond>& value) { return value.value.value > 0; }
bool given(const Sourced<Seconds>& value) { return value.value.value > 0; }

Json points_array(const std::vector<CollectivePoint>& points) {
  Json array = Json::array();
  for (const CollectivePoint& point : points) array.push_back(Json::array({point.bytes.count, rounded_us(point.time)}));
  return array;
}

Json curves_array(const std::vector<CollectiveCurve>& curves) {
  Json array = Json::array();
  for (const CollectiveCurve& curve : curves) {
    array.push_back({{"gpus", curve.gpus},
                     {"nodes", curve.nodes},
                     {"algorithm", curve.algorithm},
                     {"provenance", "measured"},
                     {"source", curve.source},
                     {"note", curve.note},
                     {"points_unit", {"B", "us"}},
                     {"points", points_array(curve.points)}});
    if (curve.launch.value > 0) array.back()["launch"] = to_string(curve.launch);
  }
  return array;
}

Json measured_array(const std::vector<MeasuredCollective>& measured) {
  Json array = Json::array();
  for (const MeasuredCollective& each : measured)
    array.push_back({{"kind", each.kind}, {"gpus", each.gpus}, {"provenance", "measured"}, {"source", each.source}, {"note", each.note},
                     {"points_unit", {"B", "us"}}, {"points", points_array(each.points)}});
  return array;
}

Json collectives_object(const CollectiveLibrary& library) {
  Json object{{"library", library.name}, {"channels", library.channels}, {"ring", sourced(library.ring)}};
  if (given(library.ll_max[0])) object["ll_max"] = by_nodes(library.ll_max);
  if (given(library.tree_per_channel[0])) object["tree_per_channel"] = by_nodes(library.tree_per_channel);
  if (given(library.ll128_per_channel[0])) object["ll128_per_channel"] = by_nodes(library.ll128_per_channel);
  if (given(library.ll128_tree_per_channel[0])) object["ll128_tree_per_channel"] = by_nodes(library.ll128_tree_per_channel);
  if (given(library.nvls)) object["nvls"] = sourced(library.nvls);
  if (given(library.all_to_all)) object["all_to_all"] = sourced(library.all_to_all);
  if (given(library.launch)) object["launch"] = sourced(library.launch);
  if (given(library.pipeline)) object["pipeline"] = sourced(library.pipeline), object["ll_share"] = sourced(library.ll_share);
  if (library.network_all_to_all.value > 0) object["network_all_to_all"] = sourced(library.network_all_to_all);
  if (library.pat) object["pat"] = true;
  if (!library.all_reduce.empty()) object["all_reduce"] = curves_array(library.all_reduce);
  if (!library.reduce_scatter.empty()) object["reduce_scatter"] = curves_array(library.reduce_scatter);
  if (!library.measured.empty()) object["measured"] = measured_array(library.measured);
  const Contention& contention = library.contention;
  object["contention"] = {{"memory_bound", sourced(contention.memory_bound)},
                          {"communication", sourced(contention.communication)}};
  return object;
}

Json node_object(const Node& node) {
  Json object{{"gpus", node.gpus}, {"gpus_per_host", node.gpus_per_host}, {"fabric", name_of(node.fabric)}};
  if (node.fabric != NodeFabric::pcie_tree || !node.pairs.empty()) object["gpu_link"] = link_object(node.gpu_link);
  if (!node.pairs.empty()) {
    object["pairs"] = Json::array();
    for (const GpuPair& pair : node.pairs) object["pairs"].push_back(Json::array({pair.first, pair.second, pair.links}));
  }
  object["host_link"] = link_object(node.host_link);
  if (given(node.uplink.bandwidth)) object["uplink"] = link_object(node.uplink);
  object["socket_link"] = link_object(node.socket_link);
  object["sockets"] = node.sockets;
  object["gpus_per_pcie_switch"] = node.gpus_per_pcie_switch;
  object["nics"] = node.nics;
  if (node.nics > 0) object["nic"] = link_object(node.nic);
  object["host_memory_bandwidth"] = sourced(node.host_memory_bandwidth);
  object["collectives"] = collectives_object(node.collectives);
  return object;
}

}  // namespace

std::string to_json(const Cluster& cluster) {
  Json object{{"name", cluster.name},
              {"title", cluster.title},
              {"accelerator", accelerator_object(cluster.accelerator)},
              {"nodes", cluster.nodes},
              {"node", node_object(cluster.node)}};
  object["fabric"] = {{"nodes_per_leaf", cluster.fabric.nodes_per_leaf},
                      {"oversubscription", cluster.fabric.oversubscription},
                      {"rails", cluster.fabric.rails}};
  object["sources"] = sources_object(cluster.sources, cluster.accelerator.sources);
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
