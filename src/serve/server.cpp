// What is served at which address.
#include <arpa/inet.h>

#include <algorithm>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "plimsoll/error.hpp"
#include "serve/answer_cache.hpp"
#include "serve/http_server.hpp"
#include "serve/page_files.hpp"
#include "serve/serve.hpp"
#include "serve/worker_pool.hpp"

namespace plimsoll::serve {
namespace {

constexpr const char* kJson = "application/json";

/// The name in a Host header, without its port.
std::string host_of(const std::string& header) {
  if (!header.empty() && header.front() == '[') return header.substr(0, header.find(']') + 1);
  return header.substr(0, header.find(':'));
}

bool is_address(const std::string& host) {
  in6_addr address;
  if (host.size() > 2 && host.front() == '[') return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) == 1;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

/// What a worker said, as an answer: an error of the caller's, or of ours.
HttpAnswer answer_of(std::shared_ptr<const std::string> text) {
  constexpr std::string_view kError = "{\n  \"schema\": \"plimsoll/error/1\"";
  HttpAnswer answer;
  if (text->compare(0, kError.size(), kError) == 0) answer.status = 400;
  answer.body = std::move(text);
  return answer;
}

class Service {
 public:
  explicit Service(const Options& options)
      : options_(options),
        page_(options.page.empty() ? std::map<std::string, PageFile>{} : read_page(options.page)),
        cache_(options.cache_bytes),
        server_(options.host, options.port, limits_of(options),
                {[this](const HttpHead& head) { return admit(head); },
                 [this](const HttpHead& head, std::string body, auto reply) { answer(head, std::move(body), std::move(reply)); }}),
        pool_(options.worker, options.workers, options.waiting, options.seconds) {}

  void run() {
    options_.ready(server_.port());
    server_.run(options_.stop);
  }

 private:
  using Reply = std::function<void(HttpAnswer)>;

  static HttpLimits limits_of(const Options& options) {
    HttpLimits limits;
    limits.body_bytes = options.request_bytes;
    return limits;
  }

  /// A page of another site that had its name point here would have that name in the header (DNS rebinding); an address is nobody's name.
  bool is_known_host(const std::string& header) const {
    const std::string host = host_of(header);
    return host == "localhost" || host == options_.host || is_address(host) ||
           std::find(options_.names.begin(), options_.names.end(), host) != options_.names.end();
  }

  std::optional<HttpAnswer> admit(const HttpHead& head) const {
    if (!is_known_host(head.host))
      return refusal(421, "this server does not have that name", "ask it by its address, or start it with --allow-host NAME");
    const bool reads = head.method == "GET" || head.method == "HEAD", calls = head.path == "/api/call";
    if (!reads && head.method != "POST") return refusal(405, "this server answers GET and POST", "POST JSON to /api/call");
    if (calls == reads && (calls || page_.count(head.path) > 0 || head.path == "/api/health"))
      return refusal(405, calls ? "a call is a POST" : "this is read by GET", "POST JSON to /api/call");
    if (!calls && head.path != "/api/health" && page_.count(head.path) == 0)
      return refusal(404, "there is nothing at this address", "POST JSON to /api/call");
    if (calls && head.content_type.substr(0, head.content_type.find(';')) != kJson)
      return refusal(415, "the request must be JSON", "Content-Type: application/json");
    return {};
  }

  void answer(const HttpHead& head, std::string body, Reply reply) {
    if (head.path == "/api/call") return answer_call(std::move(body), std::move(reply));
    HttpAnswer answer;
    answer.is_static = true;
    if (head.path == "/api/health") {
      answer.body = healthy_;
    } else {
      const PageFile& file = page_.at(head.path);
      answer.body = file.text;
      answer.type = file.type;
    }
    reply(std::move(answer));
  }

  void answer_call(std::string request, Reply reply) {
    if (request.find('\0') != std::string::npos) return reply(refusal(400, "the request holds a zero byte", "send JSON text"));
    if (auto known = cache_.find(request)) return reply(answer_of(std::move(known)));
    pool_.ask(std::move(request), [this, reply = std::move(reply)](const std::string& asked, Answer answer) {
      reply(answered(asked, std::move(answer)));
    });
  }

  HttpAnswer answered(const std::string& request, Answer answer) {
    switch (answer.outcome) {
      case Outcome::answered: {
        const auto text = std::make_shared<const std::string>(std::move(answer.text));
        cache_.keep(request, text);
        return answer_of(text);
      }
      case Outcome::busy: {
        HttpAnswer busy = refusal(503, "too many requests wait already", "ask again in a second");
        busy.retry = true;
        return busy;
      }
      case Outcome::too_slow:
        return refusal(504, "this takes longer than the server allows",
                       "--seconds is " + std::to_string(static_cast<int>(options_.seconds)) + " there");
      case Outcome::too_large:
        return refusal(500, "the answer is larger than the server passes on", "ask for less: an estimate instead of a view");
      case Outcome::died:
        break;
    }
    return refusal(500, "the request ended its worker", "it may need more memory than the server allows");
  }

  const Options& options_;
  const std::map<std::string, PageFile> page_;
  const std::shared_ptr<const std::string> healthy_ = std::make_shared<const std::string>("{\"status\":\"ok\"}\n");
  AnswerCache cache_;
  HttpServer server_;
  WorkerPool pool_;  // ends before the server that its answers go to
};

/// What large requests and answers took goes back to the system: one allocator, which keeps nothing large.
void keep_memory_flat() {
#if defined(__GLIBC__)
  constexpr int kLarge = 64 << 10;
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, kLarge);
#endif
}

}  // namespace

void run(const Options& options) {
  keep_memory_flat();
  Service(options).run();
}

}  // namespace plimsoll::serve
