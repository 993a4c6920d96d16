// cuDNN's graph API: descriptors keep what they are told, every graph has one engine, and running its plan is recorded with the shapes of
// its matrix products, convolutions and attention.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cudnn_work.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;

namespace {

/// The one engine of a graph, as the heuristic's answer.
std::shared_ptr<Contents> propose(const Contents& heuristic) {
  auto engine = std::make_shared<Contents>();
  engine->kind = kEngine;
  engine->attributes[kEngineGraph] = {kDescriptorType, 1, {}, {heuristic.child(kHeuristicGraph)}};
  engine->attributes[kEngineIndex] = {kInt64, 1, std::vector<char>(sizeof(std::int64_t)), {}};
  auto configuration = std::make_shared<Contents>();
  configuration->kind = kEngineConfiguration;
  configuration->attributes[kConfigurationEngine] = {kDescriptorType, 1, {}, {engine}};
  return configuration;
}

/// The graph that a plan or the configuration of its engine runs, or null.
Shared graph_of(const Contents& plan_or_configuration) {
  const Shared configuration = plan_or_configuration.child(kPlanConfiguration);
  const Shared engine = (configuration == nullptr ? plan_or_configuration : *configuration).child(kConfigurationEngine);
  return engine == nullptr ? nullptr : engine->child(kEngineGraph);
}

std::int64_t workspace_bytes(const Contents& plan_or_configuration) {
  const Shared graph = graph_of(plan_or_configuration);
  return graph == nullptr ? 0 : workspace_of(*graph);
}

template <class Number>
int give_number(Number number, std::int64_t wanted, std::int64_t* count, void* to) {
  if (count != nullptr) *count = 1;
  if (wanted > 0 && to != nullptr) std::memcpy(to, &number, sizeof number);
  return kDnnSuccess;
}

int give_stored(const Attribute& a, std::int64_t wanted, std::int64_t* count, void* to) {
  if (count != nullptr) *count = a.count;
  if (to == nullptr || wanted <= 0) return kDnnSuccess;
  const std::int64_t given = std::min(wanted, a.count);
  if (a.type != kDescriptorType) {
    std::memcpy(to, a.bytes.data(), static_cast<std::size_t>(given) * element_bytes(a.type));
    return kDnnSuccess;
  }
  auto* into = static_cast<Descriptor**>(to);
  for (std::int64_t i = 0; i < given; ++i)  // the program made these descriptors to be filled
    if (into[i] != nullptr) into[i]->it = std::const_pointer_cast<Contents>(a.children[static_cast<std::size_t>(i)]);
  return kDnnSuccess;
}

}  // namespace

PLIMSOLL_DEVICE_API int cudnnBackendCreateDescriptor(int kind, Descriptor** descriptor) {
  *descriptor = new Descriptor{std::make_shared<Contents>()};
  (*descriptor)->it->kind = kind;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendInitialize(Descriptor*) { return kDnnSuccess; }
PLIMSOLL_DEVICE_API int cudnnBackendFinalize(Descriptor*) { return kDnnSuccess; }
PLIMSOLL_DEVICE_API int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, std::int64_t count, const void* values) {
  if (count < 0 || (count > 0 && values == nullptr)) return kDnnBadParameter;
  Attribute a{type, count, {}, {}};
  if (type == kDescriptorType) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Descriptor* child = static_cast<Descriptor* const*>(values)[i];
      a.children.push_back(child == nullptr ? nullptr : child->it);
    }
  } else {
    const auto* from = static_cast<const char*>(values);
    a.bytes.assign(from, from + static_cast<std::size_t>(count) * element_bytes(type));
  }
  descriptor->it->attributes[name] = std::move(a);
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendGetAttribute(const Descriptor* descriptor, int name, int, std::int64_t wanted, std::int64_t* count,
                                                 void* to) {
  const Contents& own = *descriptor->it;
  if (name == kHeuristicResults && own.kind == kHeuristic) {
    if (count != nullptr) *count = 1;
    if (wanted > 0 && to != nullptr && *static_cast<Descriptor**>(to) != nullptr) (*static_cast<Descriptor**>(to))->it = propose(own);
    return kDnnSuccess;
  }
  switch (name) {
    case kPlanWorkspace:
    case kConfigurationWorkspace:
      return give_number(workspace_bytes(own), wanted, count, to);
    case kConfigurationShared:
      return give_number(std::int32_t{0}, wanted, count, to);
    case kGraphEngines:
      return give_number(std::int64_t{1}, wanted, count, to);
    default:
      break;
  }
  const auto it = own.attributes.find(name);
  if (it != own.attributes.end()) return give_stored(it->second, wanted, count, to);
  if (count != nullptr) *count = 0;  // notes, knobs and intermediates: there are none
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnGetExecutionPlanWorkspaceSize(Handle, Descriptor* plan, Descriptor*, std::size_t* bytes) {
  *bytes = plan == nullptr ? 0 : static_cast<std::size_t>(workspace_bytes(*plan->it));
  return kDnnSuccess;
}
PLIMSOLL_DEVICE_API int cudnnBackendExecute(Handle handle, const Descriptor* plan, const Descriptor* pack) {
  const Shared graph = graph_of(*plan->it);
  Stream* stream = stream_of(dnn(handle).stream);
  if (graph == nullptr || stream == nullptr || pack == nullptr) return kDnnBadParameter;
  const Work work = work_of(*graph, *pack->it);
  library_call(work.name.c_str(), *stream, work.numbers.data(), static_cast<std::uint32_t>(work.numbers.size()), work.type,
               static_cast<std::uint64_t>(workspace_of(*graph)));
  return kDnnSuccess;
}
