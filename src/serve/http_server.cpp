// The only file that knows Boost.Beast and Boost.Asio. One thread reads and writes all connections; nothing in it waits.
#include "serve/http_server.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <list>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"

namespace plimsoll::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

/// Headers of every answer: a page may run its own scripts and the planner, ask this server, and nothing else.
constexpr const char* kHeaders =
    "Content-Security-Policy: default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' "
    "data:; frame-ancestors 'none'; base-uri 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n";
constexpr const char* kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
/// Of a body that nobody wants: read, so that its sender sees the answer, up to these.
constexpr std::size_t kMostDrained = 16U << 20;
constexpr double kDrainSeconds = 2;
/// What is half sent when the server is told to end may end.
constexpr double kGraceSeconds = 1;

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string head_of(const HttpAnswer& answer, bool keep_alive) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " " +
                     std::string(http::obsolete_reason(static_cast<http::status>(answer.status))) + "\r\n" + kHeaders;
  head += "Content-Type: " + answer.type + "\r\nContent-Length: " + std::to_string(answer.body->size()) + "\r\n";
  if (answer.retry) head += "Retry-After: 1\r\n";
  return head + (keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

HttpAnswer busy() {
  HttpAnswer answer = refusal(503, "the server is full", "ask again in a second");
  answer.retry = true;
  return answer;
}

/// What a connection is doing, those first that are cut first where there is no room.
enum class Phase : std::uint8_t { draining, reading, writing, idle, answering };

class Connection;

/// All connections and what they hold together.
class Connections {
 public:
  explicit Connections(const HttpLimits& given) : limits(given) {}

  const HttpLimits limits;
  std::list<std::shared_ptr<Connection>> all;
  std::size_t held = 0;
  bool ending = false;

  /// When so many bytes more of what is large may be read: after all that were allowed before.
  Clock::time_point turn(std::size_t bytes) {
    const Clock::time_point mine = std::max(free_, Clock::now());
    free_ = mine + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(static_cast<double>(bytes) / limits.bytes_per_second));
    return mine;
  }

  /// Turns away who holds the most until the rest is within the limit; what is being answered stays.
  void keep_within();
  /// Makes room for one more: cuts who has been slow for longest. False: everyone's request is being answered.
  bool make_room();

 private:
  Clock::time_point free_;  // everything allowed is read
};

/// One client: reads a request, has it answered, writes the answer, and again.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::ip::tcp::socket socket, Connections& others, const HttpHandler& handler)
      : socket_(std::move(socket)), turn_(socket_.get_executor()), others_(others), handler_(handler), buffer_(2 * others.limits.header_bytes) {
    error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
  }

  Phase phase() const { return phase_; }
  Clock::time_point since() const { return since_; }
  bool is_late(Clock::time_point now) const { return phase_ != Phase::answering && now > deadline_; }
  std::size_t held() const { return held_; }

  void begin() {
    if (others_.ending) return close();
    enter(Phase::idle, others_.limits.idle_seconds);
    if (buffer_.size() > 0) return read_head();  // the next request is here already
    buffer_.shrink_to_fit();
    socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](error_code problem) {
      if (problem || !self->socket_.is_open()) return self->close();
      self->read_head();
    });
  }

  /// Ends it, whatever it does; what others hold stays.
  void close() {
    if (closed_) return;
    closed_ = true;
    hold(0);
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    turn_.cancel();
    others_.all.remove_if([this](const std::shared_ptr<Connection>& each) { return each.get() == this; });
  }

  /// Ends what it does now: of a request that is coming the answer is `why`.
  void cut(HttpAnswer why) {
    if (phase_ != Phase::reading) return close();
    hold(0);
    cut_ = std::move(why);
    error_code ignored;
    socket_.cancel(ignored);  // the read that is under way, or waits for its turn, ends and sees it
    turn_.cancel();
  }

  void cut_late() { cut(refusal(408, "the request took too long to come", "send it faster")); }

  /// The server ends: what is half sent has a moment, what is being answered is answered.
  void finish() {
    if (phase_ == Phase::idle || phase_ == Phase::draining) return close();
    if (phase_ == Phase::reading) deadline_ = std::min(deadline_, in_seconds(kGraceSeconds));
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  /// Closed, or cut, which is then said.
  bool is_over() {
    if (!closed_ && cut_) turn_away(*std::exchange(cut_, std::nullopt));
    return closed_ || phase_ != Phase::reading;
  }

  void enter(Phase phase, double seconds) {
    phase_ = phase;
    since_ = Clock::now();
    deadline_ = in_seconds(seconds);
  }

  /// What is small is held whoever else holds what.
  void hold(std::size_t bytes) {
    if (bytes <= others_.limits.small_bytes) bytes = 0;
    others_.held += bytes - held_;
    held_ = bytes;
  }

  void read_head() {
    enter(Phase::reading, others_.limits.request_seconds);
    head_ = {};
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(others_.limits.header_bytes));
    parser_->body_limit(others_.limits.body_bytes);
    http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code problem, std::size_t) {
      if (self->is_over()) return;
      if (problem) return self->give_up(problem);
      self->check_head();
    });
  }

  void check_head() {
    const http::fields& fields = parser_->get();
    const auto text = [&](http::field field) { return std::string(fields[field]); };
    head_ = {std::string(parser_->get().method_string()), std::string(parser_->get().target()), text(http::field::host),
             text(http::field::content_type)};
    head_.path = head_.path.substr(0, head_.path.find('?'));
    keep_alive_ = parser_->keep_alive();
    if (static_cast<std::size_t>(std::distance(fields.begin(), fields.end())) > others_.limits.headers)
      return turn_away(refusal(431, "more than " + std::to_string(others_.limits.headers) + " headers", "POST JSON to /api/call"));
    if (fields.count(http::field::host) > 1) return turn_away(refusal(400, "two names of the server", "send one Host header"));
    if (const std::string coding = text(http::field::content_encoding); !coding.empty() && coding != "identity")
      return turn_away(refusal(415, "packed requests are not unpacked", "send the JSON text as it is"));
    if (const std::string coding = text(http::field::transfer_encoding); !coding.empty() && coding != "chunked")
      return turn_away(refusal(501, "this transfer encoding is not understood", "send a Content-Length, or chunks"));
    if (std::optional<HttpAnswer> no = handler_.admit(head_)) return turn_away(*std::move(no));
    if (parser_->content_length() && *parser_->content_length() > others_.limits.body_bytes) return turn_away(too_large());
    if (text(http::field::expect) == "100-continue" && !parser_->is_done()) return go_on();
    read_body();
  }

  HttpAnswer too_large() const {
    return refusal(413, "a request of more than " + std::to_string(others_.limits.body_bytes) + " bytes is too large", "send less");
  }

  void go_on() {
    asio::async_write(socket_, asio::buffer(kGoOn, std::char_traits<char>::length(kGoOn)),
                      [self = shared_from_this()](error_code problem, std::size_t) {
                        if (self->is_over()) return;
                        if (problem) return self->close();
                        self->read_body();
                      });
  }

  void read_body() {
    if (parser_->is_done()) return have_answered();
    http::async_read_some(socket_, buffer_, *parser_, [self = shared_from_this()](error_code problem, std::size_t bytes) {
      if (self->is_over()) return;
      if (problem) return self->give_up(problem);
      const std::size_t size = self->parser_->get().body().size();
      if (size <= self->others_.limits.small_bytes) return self->read_body();
      self->hold(size);
      self->others_.keep_within();
      if (!self->is_over()) self->in_turn(bytes, [self] { self->is_over() ? void() : self->read_body(); });
    });
  }

  /// Goes on when what it read is paid for, in time.
  template <class Next>
  void in_turn(std::size_t bytes, Next next) {
    turn_.expires_at(others_.turn(bytes));
    turn_.async_wait([next](error_code) { next(); });
  }

  void have_answered() {
    phase_ = Phase::answering;
    std::string body = std::move(parser_->get().body());
    parser_.reset();
    const auto executor = socket_.get_executor();
    const auto reply = [self = shared_from_this(), executor](HttpAnswer answer) {
      asio::post(executor, [self, answer = std::move(answer)]() mutable { self->write(std::move(answer)); });
    };
    try {
      handler_.answer(head_, std::move(body), reply);
    } catch (const std::exception&) {
      reply(refusal(500, "the server could not answer", ""));
    }
  }

  /// What cannot be read is answered where it came far enough to be a request, and ends the connection.
  void give_up(error_code problem) {
    if (problem == http::error::header_limit || problem == http::error::buffer_overflow)
      return turn_away(refusal(431, "the request's headers are too large", "POST JSON to /api/call"));
    if (problem == http::error::body_limit) return turn_away(too_large());
    if (problem.category() == http::make_error_code(http::error::bad_method).category() && problem != http::error::end_of_stream &&
        problem != http::error::partial_message)
      return turn_away(refusal(400, "the request is not understood: " + problem.message(), "POST JSON to /api/call"));
    close();
  }

  /// Answers a request without the rest of it, and is done with who sent it.
  void turn_away(HttpAnswer answer) {
    keep_alive_ = false;
    parser_.reset();
    write(std::move(answer));
  }

  void write(HttpAnswer answer) {
    if (closed_) return;
    enter(Phase::writing, others_.limits.answer_seconds);
    hold(answer.is_static ? 0 : answer.body->size());
    answer_ = std::move(answer);
    keep_alive_ = keep_alive_ && !others_.ending;
    answer_head_ = head_of(answer_, keep_alive_);
    const bool bodiless = head_.method == "HEAD";
    const std::array<asio::const_buffer, 2> both{asio::buffer(answer_head_),
                                                 bodiless ? asio::const_buffer() : asio::buffer(*answer_.body)};
    asio::async_write(socket_, both, [self = shared_from_this()](error_code problem, std::size_t) { self->written(problem); });
    others_.keep_within();
  }

  void written(error_code problem) {
    answer_ = {};
    answer_head_.clear();
    if (closed_) return;
    hold(0);
    if (problem) return close();
    if (keep_alive_) return begin();
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    enter(Phase::draining, kDrainSeconds);
    drain();
  }

  /// Closed at once, a connection whose client still sends would be reset, and the answer lost with it.
  void drain() {
    buffer_.consume(buffer_.size());
    socket_.async_read_some(buffer_.prepare(buffer_.max_size()), [self = shared_from_this()](error_code problem, std::size_t bytes) {
      if (self->closed_) return;
      if (problem || (self->drained_ += bytes) > kMostDrained) return self->close();
      self->in_turn(bytes, [self] { self->closed_ ? void() : self->drain(); });
    });
  }

  asio::ip::tcp::socket socket_;
  asio::steady_timer turn_;
  Connections& others_;
  const HttpHandler& handler_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpHead head_;
  HttpAnswer answer_;
  std::string answer_head_;
  Phase phase_ = Phase::idle;
  Clock::time_point since_, deadline_;
  std::size_t held_ = 0, drained_ = 0;
  std::optional<HttpAnswer> cut_;
  bool keep_alive_ = false, closed_ = false;
};

void Connections::keep_within() {
  const auto weight = [](const std::shared_ptr<Connection>& each) { return each->phase() == Phase::answering ? 0 : each->held(); };
  while (held > limits.held_bytes) {
    const auto most = std::max_element(all.begin(), all.end(), [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
    if (most == all.end() || weight(*most) == 0) return;
    const std::shared_ptr<Connection> largest = *most;
    largest->cut(busy());
  }
}

bool Connections::make_room() {
  if (all.size() < limits.connections) return true;
  const auto slowest = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a->phase(), a->since()) < std::pair(b->phase(), b->since());
  });
  const std::shared_ptr<Connection> client = *slowest;
  if (client->phase() == Phase::answering) return false;
  client->close();
  return true;
}

/// Descriptors that connections may take, of those that this process may have: the rest are workers' pipes and files of its own.
std::size_t affordable(std::size_t connections) {
  rlimit most{};
  if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return connections;
  return std::min<std::size_t>(connections, most.rlim_cur / 2);
}

}  // namespace

class HttpServer::Listener {
 public:
  Listener(const std::string& host, int port, HttpLimits limits, HttpHandler handler)
      : handler_(std::move(handler)), acceptor_(io_), timer_(io_), connections_([&] {
          limits.connections = affordable(limits.connections);
          return limits;
        }()) {
    error_code problem;
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(host, std::to_string(port), asio::ip::resolver_base::passive, problem);
    if (!problem) problem = listen(found.begin()->endpoint());
    if (problem)
      fail("the address cannot be had: " + problem.message(), host + ":" + std::to_string(port),
           "is another server there? --port 0 takes one that is free");
  }

  int port() const { return acceptor_.local_endpoint().port(); }

  void run(const std::function<bool()>& stop) {
    accept();
    look_after(stop);
    io_.run();
  }

 private:
  error_code listen(const asio::ip::tcp::endpoint& endpoint) {
    error_code problem;
    acceptor_.open(endpoint.protocol(), problem);
    if (!problem) acceptor_.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem) acceptor_.bind(endpoint, problem);
    if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
    return problem;
  }

  void accept() {
    acceptor_.async_accept([this](error_code problem, asio::ip::tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!problem) take(std::move(socket));
      if (problem != asio::error::no_descriptors) return accept();
      paused_ = true;  // until the next look: there may be descriptors again
    });
  }

  void take(asio::ip::tcp::socket socket) {
    if (!connections_.make_room()) return turn_away(std::move(socket));
    const auto connection = std::make_shared<Connection>(std::move(socket), connections_, handler_);
    connections_.all.push_back(connection);
    connection->begin();
  }

  /// Written in one go or not at all: nobody waits for who cannot be served.
  static void turn_away(asio::ip::tcp::socket socket) {
    const HttpAnswer answer = busy();
    const std::string head = head_of(answer, false);
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(std::array<asio::const_buffer, 2>{asio::buffer(head), asio::buffer(*answer.body)}, ignored);
  }

  /// Ten times a second: cuts who is late, and sees whether to end.
  void look_after(const std::function<bool()>& stop) {
    if (!connections_.ending && stop()) end();
    const auto now = Clock::now();
    const auto all = connections_.all;
    for (const auto& each : all)
      if (each->is_late(now)) each->cut_late();
    if (connections_.ending && connections_.all.empty()) return;
    if (std::exchange(paused_, false)) accept();
    timer_.expires_after(std::chrono::milliseconds(100));
    timer_.async_wait([this, &stop](error_code) { look_after(stop); });
  }

  void end() {
    connections_.ending = true;
    error_code ignored;
    acceptor_.close(ignored);
    const auto all = connections_.all;
    for (const auto& each : all) each->finish();
  }

  const HttpHandler handler_;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  Connections connections_;
  bool paused_ = false;
};

HttpServer::HttpServer(const std::string& host, int port, HttpLimits limits, HttpHandler handler)
    : listener_(std::make_unique<Listener>(host, port, limits, std::move(handler))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return listener_->port(); }
void HttpServer::run(const std::function<bool()>& stop) { listener_->run(stop); }

HttpAnswer refusal(int status, const std::string& message, const std::string& hint) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::make_shared<const std::string>(to_json(Error(ErrorCode::bad_input, message, "request", hint)));
  return answer;
}

}  // namespace plimsoll::serve
