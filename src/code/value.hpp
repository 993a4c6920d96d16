// Values as CPython has them: counted references, so that an object, and with it a tensor, dies with the last name that means it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace plimsoll::code {

class Heap;

/// What a value refers to. Lives until its last reference is gone.
class Object {
 public:
  /// `bytes`: what it takes, beside what it holds.
  explicit Object(Heap& heap, std::int64_t bytes = 96);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  /// Drops what it refers to, so that cycles end with their interpreter.
  virtual void clear() {}

 private:
  friend class Value;
  friend class Heap;
  template <class T>
  friend class Held;
  void drop();

  Heap& heap_;
  std::int64_t bytes_;
  std::uint32_t references_ = 0;
  Object *before_ = nullptr, *behind_ = nullptr;  ///< of all objects of the heap
};

/// All objects of one interpreter, and how much they may take.
class Heap {
 public:
  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  /// Bytes of a container that grew or, negative, shrank. Throws Error (refused) beyond what modelling code can need.
  void charge(std::int64_t bytes);

 private:
  friend class Object;
  Object* first_ = nullptr;
  std::int64_t bytes_ = 0;
  int dying_ = 0;              ///< objects whose destructors run
  Object* waiting_ = nullptr;  ///< those that die when they have run
};

/// A counted reference to an object of a known kind; may be empty.
template <class T>
class Held {
 public:
  Held() = default;
  explicit Held(T* object) : object_(object) {
    if (object_ != nullptr) ++object_->references_;
  }
  Held(const Held& other) : Held(other.object_) {}
  Held(Held&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Held& operator=(Held other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Held() {
    if (object_ != nullptr) static_cast<Object*>(object_)->drop();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

/// A small value in place, or a counted reference to an object.
class Value {
 public:
  enum class Tag : std::uint8_t { unbound, none, ellipsis, not_implemented, boolean, integer, real, object };

  Value() = default;  ///< unbound: no value at all
  static Value none() { return Value(Tag::none); }
  static Value ellipsis() { return Value(Tag::ellipsis); }
  static Value not_implemented() { return Value(Tag::not_implemented); }
  static Value boolean(bool yes) {
    Value value(Tag::boolean);
    value.integer_ = yes ? 1 : 0;
    return value;
  }
  static Value integer(std::int64_t number) {
    Value value(Tag::integer);
    value.integer_ = number;
    return value;
  }
  static Value real(double number) {
    Value value(Tag::real);
    value.real_ = number;
    return value;
  }
  /// Of no object: unbound.
  explicit Value(Object* object) {
    if (object == nullptr) return;
    tag_ = Tag::object;
    object_ = object;
    ++object->references_;
  }
  template <class T>
  explicit Value(const Held<T>& held) : Value(static_cast<Object*>(held.get())) {}
  Value(const Value& other) : tag_(other.tag_), integer_(other.integer_) {
    if (tag_ == Tag::object) ++object_->references_;
  }
  Value(Value&& other) noexcept : tag_(std::exchange(other.tag_, Tag::unbound)), integer_(other.integer_) {}
  /// The old value is dropped when the new one is in place, as a name is bound anew.
  Value& operator=(Value other) noexcept {
    std::swap(tag_, other.tag_);
    std::swap(integer_, other.integer_);
    return *this;
  }
  ~Value() {
    if (Object* const held = object()) held->drop();
  }

  Tag tag() const { return tag_; }
  bool is_bound() const { return tag_ != Tag::unbound; }
  bool is_none() const { return tag_ == Tag::none; }
  bool is_boolean() const { return tag_ == Tag::boolean; }
  bool is_integer() const { return tag_ == Tag::integer || tag_ == Tag::boolean; }
  bool is_real() const { return tag_ == Tag::real; }
  bool is_number() const { return is_integer() || is_real(); }
  bool is_object() const { return tag_ == Tag::object; }
  std::int64_t as_integer() const { return integer_; }
  double as_real() const { return tag_ == Tag::real ? real_ : static_cast<double>(integer_); }
  Object* object() const { return tag_ == Tag::object ? object_ : nullptr; }
  /// The object as a `T`; null where it is none.
  template <class T>
  T* as() const {
    return tag_ == Tag::object ? dynamic_cast<T*>(object_) : nullptr;
  }
  /// `is` of Python.
  bool same(const Value& other) const {
    if (tag_ != other.tag_) return false;
    return tag_ == Tag::real ? real_ == other.real_ : tag_ < Tag::boolean || integer_ == other.integer_;
  }

 private:
  explicit Value(Tag tag) : tag_(tag) {}

  Tag tag_ = Tag::unbound;
  union {
    std::int64_t integer_ = 0;
    double real_;
    Object* object_;
  };
};

}  // namespace plimsoll::code
