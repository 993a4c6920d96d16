// Answers that were given before: an answer depends on its request alone (workers open no file and know no time), so an equal request has
// an equal one.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace plimsoll::serve {

/// Keeps the answers asked for last, of any thread.
class AnswerCache {
 public:
  /// Of requests and answers together; 0 keeps nothing.
  explicit AnswerCache(std::size_t bytes) : most_bytes_(bytes) {}

  /// Null: it was not given, or forgotten.
  std::shared_ptr<const std::string> find(const std::string& request);
  /// Forgets the ones that nobody asked for longest where there is no room. An answer that alone takes more than a tenth of it is not kept.
  void keep(const std::string& request, std::shared_ptr<const std::string> answer);

 private:
  struct Kept {
    std::string request;
    std::shared_ptr<const std::string> answer;
    /// With what the list, the table and the allocator take beside the texts.
    std::size_t bytes() const { return request.size() + answer->size() + 256; }
  };
  /// What is larger than a tenth of all is never kept.
  bool may_keep(std::size_t bytes) const { return bytes <= most_bytes_ / 10; }
  void forget_last();

  std::size_t most_bytes_, bytes_ = 0;
  std::list<Kept> kept_;                                                        // the newest first
  std::unordered_map<std::string_view, std::list<Kept>::iterator> by_request_;  // keys lie in kept_
  std::mutex mutex_;
};

}  // namespace plimsoll::serve
