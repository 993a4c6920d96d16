// The only file that knows cpp-httplib.
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"
#include "serve/answer_cache.hpp"
#include "serve/page_files.hpp"
#include "serve/serve.hpp"
#include "serve/worker_pool.hpp"

namespace plimsoll::serve {
namespace {

constexpr const char* kJson = "application/json";

/// What a page may do: run its own scripts and the planner, ask this server, and nothing else.
const httplib::Headers kHeaders{{"Content-Security-Policy",
                                 "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src "
                                 "'self' data:; frame-ancestors 'none'; base-uri 'none'"},
                                {"X-Content-Type-Options", "nosniff"},
                                {"Referrer-Policy", "no-referrer"},
                                {"Cache-Control", "no-store"}};

void refuse(httplib::Response& response, int status, const std::string& message, const std::string& hint) {
  response.status = status;
  response.set_content(to_json(Error(ErrorCode::bad_input, message, "request", hint)), kJson);
}

/// The name in a Host header, without its port.
std::string host_of(const std::string& header) {
  if (!header.empty() && header.front() == '[') return header.substr(0, header.find(']') + 1);
  return header.substr(0, header.find(':'));
}

/// A page of another site that had its name point here would have that name in the header (DNS rebinding).
bool is_known_host(const httplib::Request& request, const Options& options) {
  const std::string host = host_of(request.get_header_value("Host"));
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == options.host || host == "[" + options.host + "]";
}

void send(httplib::Response& response, std::string text) {
  if (text.rfind("{\n  \"schema\": \"plimsoll/error/1\"", 0) == 0) response.status = 400;
  response.set_content(std::move(text), kJson);
}

void answer_call(const httplib::Request& request, httplib::Response& response, WorkerPool& pool, AnswerCache& cache, double seconds) {
  const std::string type = request.get_header_value("Content-Type");
  if (type.substr(0, type.find(';')) != kJson) return refuse(response, 415, "the request must be JSON", "Content-Type: application/json");
  if (request.body.find('\0') != std::string::npos) return refuse(response, 400, "the request holds a zero byte", "send JSON text");
  if (auto known = cache.find(request.body)) return send(response, std::move(*known));
  Answer answer = pool.ask(request.body);
  switch (answer.outcome) {
    case Outcome::answered:
      cache.keep(request.body, answer.text);
      return send(response, std::move(answer.text));
    case Outcome::busy:
      response.set_header("Retry-After", "1");
      return refuse(response, 503, "too many requests wait already", "ask again in a second");
    case Outcome::too_slow:
      return refuse(response, 504, "this takes longer than the server allows",
                    "--seconds is " + std::to_string(static_cast<int>(seconds)) + " there");
    case Outcome::died:
      return refuse(response, 500, "the request ended its worker", "it may need more memory than the server allows");
  }
}

void set_limits(httplib::Server& server, const Options& options) {
  constexpr std::size_t kConnections = 64;
  server.new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
  server.set_payload_max_length(options.request_bytes);
  server.set_read_timeout(5, 0);
  server.set_write_timeout(5, 0);
  server.set_keep_alive_timeout(1);
  server.set_keep_alive_max_count(100'000);
  server.set_tcp_nodelay(true);
  server.set_socket_options([](socket_t socket) {  // not SO_REUSEPORT, the library's choice: a second server would share the port
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_default_headers(kHeaders);
}

void set_routes(httplib::Server& server, const Options& options, WorkerPool& pool, AnswerCache& cache,
                const std::map<std::string, PageFile>& page) {
  server.set_pre_routing_handler([&](const httplib::Request& request, httplib::Response& response) {
    if (is_known_host(request, options)) return httplib::Server::HandlerResponse::Unhandled;
    refuse(response, 421, "this server does not have that name", "ask it by the address that it printed");
    return httplib::Server::HandlerResponse::Handled;
  });
  server.Post("/api/call", [&](const httplib::Request& request, httplib::Response& response) {
    answer_call(request, response, pool, cache, options.seconds);
  });
  server.Get("/api/health",
             [](const httplib::Request&, httplib::Response& response) { response.set_content("{\"status\":\"ok\"}\n", kJson); });
  server.Get(R"(/.*)", [&](const httplib::Request& request, httplib::Response& response) {
    const auto file = page.find(request.path);
    if (file == page.end()) return refuse(response, 404, "there is nothing at " + request.path, "POST JSON to /api/call");
    response.set_content(file->second.text, file->second.type);
  });
  server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    refuse(response, response.status, response.status == 413 ? "the request is too large" : "the request is not understood",
           "POST JSON to /api/call");
  });
  server.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
    refuse(response, 500, "the server could not answer", "");
  });
}

}  // namespace

void run(const Options& options) {
  const std::map<std::string, PageFile> page = options.page.empty() ? std::map<std::string, PageFile>{} : read_page(options.page);
  WorkerPool pool(options.worker, options.workers, options.waiting, options.seconds);
  AnswerCache cache(options.cache_bytes);
  httplib::Server server;
  set_limits(server, options);
  set_routes(server, options, pool, cache, page);
  const int port =
      options.port != 0 ? (server.bind_to_port(options.host, options.port) ? options.port : -1) : server.bind_to_any_port(options.host);
  if (port < 0)
    fail("the address cannot be had", options.host + ":" + std::to_string(options.port),
         "is another server there? --port 0 takes one that is free");
  std::atomic<bool> done{false};
  std::thread watch([&] {
    while (!done && !options.stop()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    while (!done && !server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    server.stop();
  });
  options.ready(port);
  server.listen_after_bind();  // returns when it was stopped and every request begun is answered
  done = true;
  watch.join();
}

}  // namespace plimsoll::serve
