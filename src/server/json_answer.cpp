// SPDX-License-Identifier: Apache-2.0
#include "server/json_answer.h"

#include <string>
#include <utility>

namespace heddle::server {
namespace {

class JsonBody final : public BodySource {
 public:
  JsonBody(JsonAnswer answer, std::string begin)
      : answer_(std::move(answer)), begin_(std::move(begin)) {}

  bool next(std::string& piece) override {
    piece.swap(begin_);
    static_cast<void>(answer_.body.next(piece, kBodyPieceBytes));
    return !answer_.body.done();
  }

 private:
  JsonAnswer answer_;
  std::string begin_;  // written already
};

}  // namespace

void send_json(const BodyThreads& threads, std::shared_ptr<Exchange> exchange, HttpHeaders headers,
               JsonAnswer answer) {
  HttpResponse response{.headers = std::move(headers), .body = {}};
  static_cast<void>(answer.body.next(response.body, kShortBodyBytes));
  if (answer.body.done()) {
    exchange->respond(std::move(response));
    return;
  }
  auto body = std::make_unique<JsonBody>(std::move(answer), std::exchange(response.body, {}));
  exchange->open_body(std::move(response));
  send_body(threads, std::move(exchange), std::move(body));
}

}  // namespace heddle::server
