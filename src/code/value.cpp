#include "code/value.hpp"

#include <vector>

#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;
constexpr int kMostDying = 100;  ///< destructors within each other; what is deeper waits, as in CPython's trashcan

}  // namespace

Object::Object(Heap& heap, std::int64_t bytes) : heap_(heap), bytes_(bytes), behind_(heap.first_) {
  heap.charge(bytes);
  if (behind_ != nullptr) behind_->before_ = this;
  heap.first_ = this;
}

Object::~Object() {
  (before_ != nullptr ? before_->behind_ : heap_.first_) = behind_;
  if (behind_ != nullptr) behind_->before_ = before_;
  heap_.bytes_ -= bytes_;
}

void Object::drop() {
  if (--references_ > 0) return;
  Heap& heap = heap_;
  if (heap.dying_ >= kMostDying) {  // out of the list of all, into that of those that wait
    (before_ != nullptr ? before_->behind_ : heap.first_) = behind_;
    if (behind_ != nullptr) behind_->before_ = before_;
    before_ = nullptr;
    behind_ = heap.waiting_;
    heap.waiting_ = this;
    return;
  }
  ++heap.dying_;
  delete this;
  if (heap.dying_ == 1) {
    while (Object* next = heap.waiting_) {
      heap.waiting_ = next->behind_;
      next->behind_ = heap.first_;
      if (heap.first_ != nullptr) heap.first_->before_ = next;
      heap.first_ = next;
      delete next;
    }
  }
  --heap.dying_;
}

void Heap::charge(std::int64_t bytes) {
  bytes_ += bytes;
  if (bytes > 0 && bytes_ > kMostBytes) {
    bytes_ -= bytes;
    refuse("the code's own values take more than 128 MiB");
  }
}

/// What only cycles keep alive.
Heap::~Heap() {
  std::vector<Value> all;
  for (Object* each = first_; each != nullptr; each = each->behind_) all.emplace_back(each);
  for (const Value& each : all) each.object()->clear();
}

}  // namespace plimsoll::code
