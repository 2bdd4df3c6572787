// SPDX-License-Identifier: Apache-2.0
#include "server/call/answer_log.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/text_codec.h"
#include "server/http/json_pieces.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

Json loss_json(const CacheLoss& lost) {
  return {{"eviction", lost.eviction},
          {"missing_state", lost.missing_state},
          {"grid", lost.grid},
          {"last_token", lost.last_token}};
}

// Appends a token and its log probability; leaves the JSON object open.
void append_token(TokenId token, float logprob, const TextCodec& codec, std::string& out) {
  const std::string bytes = codec.token_bytes(token);
  out += "{\"token\":";
  append_json_string(bytes, out);
  out += ",\"logprob\":";
  append_logprob(logprob, out);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",",
                   static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

}  // namespace

void LogprobLog::add(const TokenLogprob& entry) {
  entries_.emplace_back(entry.token, entry.logprob);
  tops_.insert(tops_.end(), entry.top.begin(), entry.top.end());
  top_ends_.push_back(tops_.size());
  listed_.insert(listed_.end(), entry.listed.begin(), entry.listed.end());
}

void LogprobLog::append(const LogprobLog& more) {
  const size_t num_tops = tops_.size();
  entries_.insert(entries_.end(), more.entries_.begin(), more.entries_.end());
  tops_.insert(tops_.end(), more.tops_.begin(), more.tops_.end());
  for (const size_t end : more.top_ends_) top_ends_.push_back(num_tops + end);
  listed_.insert(listed_.end(), more.listed_.begin(), more.listed_.end());
}

void LogprobLog::clear() {
  entries_.clear();
  tops_.clear();
  top_ends_.clear();
  listed_.clear();
}

std::span<const std::pair<TokenId, float>> LogprobLog::top(size_t index) const {
  const size_t begin = index == 0 ? 0 : top_ends_[index - 1];
  return std::span(tops_).subspan(begin, top_ends_[index] - begin);
}

std::span<const float> LogprobLog::listed(size_t index) const {
  const size_t each = listed_.size() / entries_.size();
  return std::span(listed_).subspan(index * each, each);
}

void ChoiceLog::add(const RequestEvent& event) {
  text += event.text;
  tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
  for (const TokenLogprob& entry : event.logprobs) logprobs.add(entry);
  for (const TokenLogprob& entry : event.prompt_logprobs) prompt_logprobs.add(entry);
  if (event.finish) finish = event.finish;
  counts = {.prompt_tokens = event.prompt_tokens,
            .completion_tokens = event.completion_tokens,
            .cached_tokens = event.cached_tokens,
            .reasoning_tokens = counts.reasoning_tokens,
            .cache = event.cache,
            .drafts = event.drafts,
            .num_retractions = event.num_retractions,
            .queue_seconds = event.queue_seconds,
            .elapsed_seconds = event.elapsed_seconds};
}

void ChoiceLog::clear() {
  text.clear();
  tokens.clear();
  logprobs.clear();
  prompt_logprobs.clear();
}

Json usage_json(std::span<const ChoiceLog> choices, size_t choices_per_prompt, bool cache_details) {
  ChoiceCounts total;
  total.cache.exact_repeat = true;
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChoiceCounts& counts = choices[i].counts;
    total.completion_tokens += counts.completion_tokens;
    total.reasoning_tokens += counts.reasoning_tokens;
    total.drafts.accepted_tokens += counts.drafts.accepted_tokens;
    total.drafts.rejected_tokens += counts.drafts.rejected_tokens;
    if (i % choices_per_prompt != 0) continue;
    total.prompt_tokens += counts.prompt_tokens;
    total.cached_tokens += counts.cached_tokens;
    total.cache.matched_tokens += counts.cache.matched_tokens;
    total.cache.exact_repeat = total.cache.exact_repeat && counts.cache.exact_repeat;
    total.cache.lost += counts.cache.lost;
  }
  Json details = {{"cached_tokens", total.cached_tokens}};
  if (cache_details) {
    details["matched_tokens"] = total.cache.matched_tokens;
    details["exact_repeat"] = total.cache.exact_repeat;
    details["lost_tokens"] = loss_json(total.cache.lost);
  }
  return {{"prompt_tokens", total.prompt_tokens},
          {"completion_tokens", total.completion_tokens},
          {"total_tokens", total.prompt_tokens + total.completion_tokens},
          {"prompt_tokens_details", std::move(details)},
          {"completion_tokens_details",
           {{"reasoning_tokens", total.reasoning_tokens},
            {"accepted_prediction_tokens", total.drafts.accepted_tokens},
            {"rejected_prediction_tokens", total.drafts.rejected_tokens}}},
          {"reasoning_tokens", total.reasoning_tokens}};
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

Json matched_stop(const Finish& finish) {
  if (finish.matched_text) return *finish.matched_text;
  if (finish.matched_token) return *finish.matched_token;
  return nullptr;
}

Json cache_details(const CacheReport& report) {
  return {{"device", report.reused_tokens},
          {"matched_tokens", report.matched_tokens},
          {"exact_repeat", report.exact_repeat},
          {"deferred_ms", report.deferred_seconds * 1e3},
          {"lost_tokens", loss_json(report.lost)}};
}

void append_token_logprob(const LogprobLog& log, size_t index, const TextCodec& codec,
                          std::string& out) {
  append_token(log.token(index), log.logprob(index), codec, out);
  out += ",\"top_logprobs\":[";
  const size_t begin = out.size();
  for (const auto& [token, logprob] : log.top(index)) {
    if (out.size() > begin) out += ',';
    append_token(token, logprob, codec, out);
    out += '}';
  }
  out += "]}";
}

void append_logprob(float logprob, std::string& out) {
  append_json_number(std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0, out);
}

}  // namespace heddle::server
