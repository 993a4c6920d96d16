// HTTP/1.1 for whoever may reach this machine: every request ends in bytes and in seconds, and all of them together hold so many
// connections and so much memory. Who is slow, or holds the most, is cut before anybody else waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace plimsoll::serve {

struct HttpLimits {
  std::size_t connections = 512;
  std::size_t header_bytes = 16U << 10;
  std::size_t headers = 100;
  std::size_t body_bytes = 8U << 20;
  std::size_t small_bytes = 64U << 10;  ///< bodies of that size wait for nothing
  std::size_t held_bytes = 12U << 20;   ///< larger bodies that come and answers that go, of all connections together
  double bytes_per_second = 64 << 20;   ///< of what is larger, of all connections together: reading costs processors too
  double request_seconds = 10;         ///< from a request's first byte to its last
  double answer_seconds = 10;          ///< to take an answer
  double idle_seconds = 5;             ///< a connection may say nothing
};

/// What stands before a body.
struct HttpHead {
  std::string method, path, host, content_type;  ///< path: without what follows "?"
};

struct HttpAnswer {
  int status = 200;
  std::shared_ptr<const std::string> body;
  std::string type = "application/json";
  bool retry = false;      ///< "Retry-After: 1"
  bool is_static = false;  ///< the body is the server's own, held once whoever reads it
};

/// What a server is for. Both are called on its one thread.
struct HttpHandler {
  /// Refuses a request by its head; else its body is read.
  std::function<std::optional<HttpAnswer>(const HttpHead&)> admit;
  /// Answers once, at once or later, from any thread.
  std::function<void(const HttpHead&, std::string body, std::function<void(HttpAnswer)>)> answer;
};

class HttpServer {
 public:
  /// Takes connections at that address from now on. Throws Error where it cannot be had. Port 0: any that is free.
  HttpServer(const std::string& host, int port, HttpLimits limits, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// Serves until `stop`, asked ten times a second, says so; then takes no more, and returns when what was begun is answered.
  void run(const std::function<bool()>& stop);

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

/// An answer that says no, as an object of schema "plimsoll/error/1".
HttpAnswer refusal(int status, const std::string& message, const std::string& hint);

}  // namespace plimsoll::serve
