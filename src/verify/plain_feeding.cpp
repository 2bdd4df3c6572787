// SPDX-License-Identifier: Apache-2.0
#include "verify/plain_feeding.h"

#include <algorithm>
#include <array>

#include "verify/session.h"

namespace heddle::verify {

namespace {

constexpr int64_t kOtherTokens = 29;  // most tokens of another sequence in its first step

class CaseRun {
 public:
  CaseRun(runner::ForwardPass& pass, const GoldenCase& golden, const Feeding& feeding,
          std::vector<float>& first_logits)
      : pass_(pass),
        golden_(golden),
        feeding_(feeding),
        comparison_(golden, pass, first_logits),
        reversed_ids_(golden.ids.rbegin(), golden.ids.rend()) {}

  Result<CaseResult> run() {
    const int64_t capacity = golden_.num_compared_tokens() + 1 + kOtherTokens;
    HEDDLE_ASSIGN_OR_RETURN(Session session,
                            Session::create(pass_, {.num_sequences = 3, .max_tokens = capacity}));
    if (golden_.adapter != nullptr) session.set_adapter(0, golden_.adapter->slot);
    if (golden_.pictures) session.show_pictures(0, &*golden_.pictures);
    const int64_t short_tokens = checkpoint::short_rope_tokens(pass_.config().rope);
    const auto outgrows = [&](int64_t length) { return short_tokens > 0 && length > short_tokens; };
    bool is_long = outgrows(golden_.num_tokens());
    if (is_long) session.take_long_rope(0);
    HEDDLE_RETURN_IF_ERROR(feed_prompt(session));
    // Feeds the reference's tokens, not the model's, so that one near tie does not change the
    // following rows.
    for (int64_t token = golden_.num_tokens(); token < golden_.num_compared_tokens(); ++token) {
      if (!is_long && outgrows(token + 1)) {
        is_long = true;
        HEDDLE_RETURN_IF_ERROR(feed_again(session, token));
      }
      const auto index = static_cast<size_t>(token - golden_.num_tokens());
      const std::array<Session::Feed, 1> feed = {{{0, {&golden_.greedy[index], 1}}}};
      HEDDLE_RETURN_IF_ERROR(session.step(feed, runner::LogitRows::kAll));
      comparison_.take_rows(0, token, 1);
    }
    return comparison_.result();
  }

 private:
  Status feed_prompt(Session& session) {
    const int64_t num_tokens = golden_.num_tokens();
    const int64_t chunk = feeding_.chunk > 0 ? feeding_.chunk : num_tokens;
    const std::span<const TokenId> ids(golden_.ids);
    int64_t step = 0;
    for (int64_t done = 0; done < num_tokens; ++step) {
      const int64_t count = std::min(chunk, num_tokens - done);
      std::vector<Session::Feed> feeds;
      int64_t first_row = 0;
      if (feeding_.with_others) {
        // One other sequence before the case's, one after it; they prefill in the first step and
        // decode afterwards.
        const int64_t length = step == 0 ? std::min(kOtherTokens, num_tokens) : int64_t{1};
        const int64_t begin = (step * 7) % num_tokens;
        first_row = std::min(length, num_tokens - begin);
        feeds.push_back(
            {1, std::span<const TokenId>(reversed_ids_)
                    .subspan(static_cast<size_t>(begin), static_cast<size_t>(first_row))});
      }
      feeds.push_back({0, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count))});
      if (feeding_.with_others) feeds.push_back({2, ids.subspan(0, 1)});
      HEDDLE_RETURN_IF_ERROR(session.step(feeds, runner::LogitRows::kAll));
      comparison_.take_rows(first_row, done, count);
      done += count;
    }
    return {};
  }

  // Feeds the first `num_tokens` again with the second table of rotary frequencies, after the case
  // has outgrown the first table.
  Status feed_again(Session& session, int64_t num_tokens) {
    std::vector<TokenId> tokens = golden_.ids;
    tokens.insert(tokens.end(), golden_.greedy.begin(), golden_.greedy.end());
    HEDDLE_RETURN_IF_ERROR(session.reset(0));
    session.take_long_rope(0);
    const Session::Feed feed{
        0, std::span<const TokenId>(tokens).first(static_cast<size_t>(num_tokens))};
    return session.step({&feed, 1}, runner::LogitRows::kAll);
  }

  runner::ForwardPass& pass_;
  const GoldenCase& golden_;
  const Feeding& feeding_;
  GoldenComparison comparison_;
  std::vector<TokenId> reversed_ids_;
};

}  // namespace

std::vector<Feeding> all_feedings() {
  return {{.name = "whole"},
          {.name = "one at a time", .chunk = 1},
          {.name = "chunks of 17", .chunk = 17},
          {.name = "chunks of 64", .chunk = 64},
          {.name = "chunks of 65", .chunk = 65},
          {.name = "with others", .with_others = true},
          {.name = "chunks of 17 with others", .chunk = 17, .with_others = true}};
}

Result<CaseResult> check_case(runner::ForwardPass& pass, const GoldenCase& golden,
                              const Feeding& feeding, std::vector<float>& first_logits) {
  HEDDLE_RETURN_IF_ERROR(check_fits(golden, pass.config()));
  return CaseRun(pass, golden, feeding, first_logits).run();
}

}  // namespace heddle::verify
