#include "serve/answer_cache.hpp"

#include <utility>

namespace plimsoll::serve {

std::shared_ptr<const std::string> AnswerCache::find(const std::string& request) {
  if (!may_keep(request.size())) return nullptr;  // and it need not be read for that
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_request_.find(request);
  if (found == by_request_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->answer;
}

void AnswerCache::keep(const std::string& request, std::shared_ptr<const std::string> answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (by_request_.count(request) > 0 || !may_keep(request.size() + answer->size())) return;
  kept_.push_front({request, std::move(answer)});
  bytes_ += kept_.front().bytes();
  by_request_.emplace(kept_.front().request, kept_.begin());
  while (bytes_ > most_bytes_) forget_last();
}

void AnswerCache::forget_last() {
  by_request_.erase(kept_.back().request);
  bytes_ -= kept_.back().bytes();
  kept_.pop_back();
}

}  // namespace plimsoll::serve
