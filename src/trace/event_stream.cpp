#include "trace/event_stream.hpp"

#include <fmt/format.h>

#include "plimsoll/error.hpp"

namespace plimsoll::trace {
namespace {

constexpr std::size_t kMostEvent = std::size_t{4} << 20, kMostMember = std::size_t{1} << 20;
constexpr const char* kEvents = "traceEvents";

bool is_blank(char letter) { return letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t'; }

/// Follows brackets and texts letter by letter: all that is needed to cut a file into values.
class Cutter {
 public:
  Cutter(ByteSource& source, const EventHandlers& handlers) : source_(source), handlers_(handlers) {}

  void run() {
    for (std::string_view piece = source_.next(); !piece.empty(); piece = source_.next())
      for (std::size_t i = 0; i < piece.size();) i += taken(piece.substr(i));
    if (state_ == State::start) fail("is empty: no trace", source_.path());
    if (state_ != State::done)
      fail(fmt::format("the trace is cut off: it ends at byte {} inside of {}", at_, state_ == State::start ? "nothing" : in_events_ ? "its events" : "its object"),
           source_.path(), "profilers write the end last: record again, with fewer steps if the disk was full");
    if (!had_events_) fail("has no member 'traceEvents'", source_.path(), "traces of torch.profiler (export_chrome_trace) have one");
  }

 private:
  enum class State : std::uint8_t { start, between, key, colon, value, done };

  /// Handles the first letters of a piece: how many.
  std::size_t taken(std::string_view piece) {
    if (state_ == State::value && depth_ > 0) return inside(piece);
    step(piece.front());
    ++at_;
    return 1;
  }

  /// Inside of a value with brackets, or of a text: up to where something happens.
  std::size_t inside(std::string_view piece) {
    std::size_t i = 0;
    for (; i < piece.size(); ++i) {
      const char letter = piece[i];
      if (escaped_) {
        escaped_ = false;
      } else if (in_text_) {
        if (letter == '\\') escaped_ = true;
        if (letter == '"') in_text_ = false;
      } else if (letter == '"') {
        in_text_ = true;
      } else if (letter == '{' || letter == '[') {
        ++depth_;
      } else if (letter == '}' || letter == ']') {
        --depth_;
      }
      if (depth_ == 0 && !in_text_) {
        ++i;
        break;
      }
    }
    keep(piece.substr(0, i));
    at_ += i;
    if (depth_ == 0) finish_value();
    return i;
  }

  void step(char letter) {
    if (state_ == State::value) return scalar(letter);
    if (is_blank(letter)) return;
    switch (state_) {
      case State::start:
        if (letter != '{' && letter != '[') foreign();
        in_object_ = letter == '{';
        in_events_ = had_events_ = !in_object_;
        state_ = State::between;
        return;
      case State::between:
        return between(letter);
      case State::key:
        return;
      case State::colon:
        if (letter != ':') foreign();
        state_ = State::value;
        begin_value();
        return;
      default:
        fail(fmt::format("something follows the trace's end at byte {}", at_), source_.path());
    }
  }

  void between(char letter) {
    if (letter == ',') return;
    if (in_events_) {
      if (letter == ']') {
        in_events_ = false;
        if (!in_object_) state_ = State::done;
        return;
      }
      if (letter != '{') foreign();
      begin_value();
      state_ = State::value;
      open(letter);
      return;
    }
    if (letter == '}') {
      state_ = State::done;
    } else if (letter == '"') {
      reading_key_ = true;
      key_.clear();
      state_ = State::value;
      begin_value();
      in_text_ = true;
    } else {
      foreign();
    }
  }

  /// A letter of a value that has no brackets yet.
  void scalar(char letter) {
    if (in_text_) {
      keep({&letter, 1});
      if (escaped_)
        escaped_ = false;
      else if (letter == '\\')
        escaped_ = true;
      else if (letter == '"') {
        in_text_ = false;
        finish_value();
      }
    } else if (letter == '"') {
      keep({&letter, 1});
      in_text_ = true;
    } else if (letter == '{' || letter == '[') {
      if (letter == '[' && key_ == kEvents && !reading_key_) {
        in_events_ = had_events_ = true;
        state_ = State::between;
        return;
      }
      open(letter);
    } else if (letter == ',' || letter == '}') {
      finish_value();
      if (letter == '}') state_ = State::done;
    } else if (!is_blank(letter)) {
      keep({&letter, 1});
    }
  }

  void open(char letter) {
    keep({&letter, 1});
    depth_ = 1;
  }

  void begin_value() {
    text_.clear();
    begun_ = at_;
    escaped_ = in_text_ = false;
    depth_ = 0;
  }

  void keep(std::string_view letters) {
    const std::size_t most = in_events_ ? kMostEvent : kMostMember;
    if (text_.size() + letters.size() > most) {
      if (in_events_) fail(fmt::format("an event of more than {} MiB begins at byte {}", kMostEvent >> 20U, begun_), source_.path());
      text_.clear();
      dropped_ = true;
    }
    if (!dropped_) text_ += letters;
  }

  void finish_value() {
    state_ = State::between;
    if (reading_key_) {
      reading_key_ = false;
      key_ = text_.substr(0, text_.empty() ? 0 : text_.size() - 1);  // without the quote at its end
      state_ = State::colon;
    } else if (in_events_) {
      handlers_.event(text_, begun_);
    } else if (!dropped_ && handlers_.member) {
      handlers_.member(key_, text_);
    }
    dropped_ = false;
  }

  [[noreturn]] void foreign() {
    fail(fmt::format("is no Chrome trace: unexpected letter at byte {}", at_), source_.path(),
         "traces of torch.profiler (export_chrome_trace, plain or gzipped) are");
  }

  ByteSource& source_;
  const EventHandlers& handlers_;
  State state_ = State::start;
  bool in_object_ = false, in_events_ = false, had_events_ = false, reading_key_ = false;
  bool in_text_ = false, escaped_ = false, dropped_ = false;
  int depth_ = 0;
  std::uint64_t at_ = 0, begun_ = 0;
  std::string key_, text_;
};

}  // namespace

void read_events(ByteSource& source, const EventHandlers& handlers) { Cutter(source, handlers).run(); }

}  // namespace plimsoll::trace
