// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a call: the engine accepts what the server accepts, and every
// answer is JSON, each event of a stream too.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "request/validate.h"
#include "server/admin/engine_control.h"
#include "server/api/anthropic/anthropic_messages.h"
#include "server/api/native/native_generate.h"
#include "server/api/native/tokenize.h"
#include "server/api/ollama/ollama.h"
#include "server/api/openai/chat_completions.h"
#include "server/api/openai/completions.h"
#include "server/api/responses/responses.h"
#include "server/call/api_adapter.h"
#include "server/call/prompt_list.h"
#include "server/fake_codec.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

// "data: {...}" and an empty line.
void check_event(std::string_view event) {
  HEDDLE_CHECK(event.starts_with("data: ") && event.ends_with("\n\n"));
  event.remove_prefix(6);
  HEDDLE_CHECK(nlohmann::json::accept(event));
}

// Events and, at the end, the mark of it.
void check_stream(std::string_view output) {
  HEDDLE_CHECK(output.ends_with(kSseDone));
  output.remove_suffix(kSseDone.size());
  HEDDLE_CHECK(!output.empty());
  while (!output.empty()) {
    const size_t end = output.find("\n\n");
    HEDDLE_CHECK(end != std::string_view::npos);
    check_event(output.substr(0, end + 2));
    output.remove_prefix(end + 2);
  }
}

void check_call(PreparedCall& call, const ModelInfo& model) {
  HEDDLE_CHECK(!call.requests.empty());
  HEDDLE_CHECK_LE(call.requests.size(), kMaxRequests);
  for (Request& request : call.requests) {
    request.id = "1";  // set at submission
    const Status status = request::validate_request(
        request, {.vocab_size = model.vocab_size, .context_length = model.context_length});
    HEDDLE_CHECK_EQ(status.message(), "");  // shows why not
  }
  std::string output;
  for (size_t choice = 0; choice < call.requests.size(); ++choice) {
    RequestEvent event;
    event.text = "x";
    event.tokens = {0};
    call.adapter->event(choice, event, output);
    call.adapter->rest().write_all(output);
    RequestEvent last;
    last.finish = Finish{};
    call.adapter->event(choice, last, output);
    call.adapter->rest().write_all(output);
  }
  if (call.stream) {
    call.adapter->end(output);
    if (output.starts_with("data: ")) check_stream(output);  // OpenAI's older APIs
  } else {
    HEDDLE_CHECK_EQ(output, "");
    call.adapter->body().write_all(output);
    HEDDLE_CHECK(nlohmann::json::accept(output));
  }
}

void check_error(const ApiError& error) {
  HEDDLE_CHECK(!error.code.empty() && !error.message.empty());
  HEDDLE_CHECK(nlohmann::json::accept(error_response(error).body));
  check_event(error_event(error));
}

void check(AnswerResult result) {
  if (auto* const answer = std::get_if<JsonAnswer>(&result)) {
    std::string body;
    answer->body.write_all(body);
    HEDDLE_CHECK(nlohmann::json::accept(body));
    return;
  }
  check_error(std::get<ApiError>(result));
}

void check(PrepareResult result, const ModelInfo& model) {
  if (auto* const call = std::get_if<PreparedCall>(&result)) {
    check_call(*call, model);
    return;
  }
  if (auto* const answer = std::get_if<JsonAnswer>(&result)) return check(std::move(*answer));
  check_error(std::get<ApiError>(result));
}

}  // namespace
}  // namespace heddle::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::server;
  if (size == 0) return 0;
  static const heddle::ModelInfo model = [] {
    heddle::ModelInfo info;
    info.name = "m";
    info.vocab_size = 300;
    info.context_length = 4096;
    return info;
  }();
  static const FakeCodec codec;
  static const std::vector<std::string> names = {"m"};
  static const HttpRequest head;
  static const FairKey key;
  const CallContext context{.model = model,
                            .codec = codec,
                            .served_names = names,
                            .head = head,
                            .fair_key = key,
                            .id = "1"};
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 12) {
    case 0:
      check(prepare_chat(context, body), model);
      break;
    case 1:
      check(prepare_completions(context, body), model);
      break;
    case 2:
      check(prepare_generate(context, body), model);
      break;
    case 3:
      check(answer_tokenize(context, body));
      break;
    case 4:
      check(answer_detokenize(context, body));
      break;
    case 5:
      check(prepare_messages(context, body), model);
      break;
    case 6:
      check(answer_count_tokens(context, body));
      break;
    case 7:
      check(prepare_responses(context, body), model);
      break;
    case 8:
      check(prepare_ollama_chat(context, body), model);
      break;
    case 9:
      check(prepare_ollama_generate(context, body), model);
      break;
    case 10:
      if (const auto mode = read_pause_mode(body); mode.index() == 1) {
        check_error(std::get<ApiError>(mode));
      }
      break;
    default: {
      const auto order = read_abort(body);
      if (const auto* const abort = std::get_if<AbortOrder>(&order)) {
        HEDDLE_CHECK(abort->all || !abort->id.empty());
      } else {
        check_error(std::get<ApiError>(order));
      }
      break;
    }
  }
  return 0;
}
