#include "calibrate/peer_collectives.hpp"

namespace plimsoll::calibrate {

PeerCollectives::PeerCollectives(Backend& backend, Processes& processes) : backend_(backend), processes_(processes) {
  if (const std::string name = backend.facts().backend; name != "cpu") device_ = open_device_collectives(name, processes);
}

void PeerCollectives::run(CollectiveKind kind, void* send, void* receive, std::int64_t bytes, StreamId stream) {
  if (device_)
    device_->run(kind, send, receive, bytes, backend_.native_stream(stream));
  else
    processes_.collective(kind, send, receive, bytes);
}

}  // namespace plimsoll::calibrate
