// The JSON reader that all others stand on, with every question that it answers about a value.
#include "reader.hpp"
#include "units/json_reader.hpp"

namespace {

/// Asks a value everything; the answers to the wrong questions are Errors, which must not end the walk.
void ask(const plimsoll::JsonValue& value) {
  const auto may_fail = [](auto question) {
    try {
      question();
    } catch (const plimsoll::Error&) {
    }
  };
  if (value.is_number()) {
    may_fail([&] { (void)value.integer(-5, INT64_MAX); });
    may_fail([&] { (void)value.number(-1e300, 1e300); });
  }
  if (value.is_object())
    for (const std::string& key : value.keys()) ask(value[key]);
  else if (value.is_array())
    for (const plimsoll::JsonValue& each : value.elements()) ask(each);
  (void)value.where();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) {
    const auto document = plimsoll::JsonDocument::parse(text, "input");
    ask(document.root());
    (void)document.root().unread_keys();
  });
}
