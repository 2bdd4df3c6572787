// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_limits.h"

#include <algorithm>

#include <fmt/format.h>

#include "speculative/draft_tree.h"

namespace heddle::speculative {

int32_t num_draft_tokens(const SpeculativeOptions& options) {
  if (options.algorithm == DraftAlgorithm::kNone || options.algorithm == DraftAlgorithm::kAuto) {
    return 0;
  }
  if (options.num_steps > 0 && options.eagle_topk == 1) return options.num_steps + 1;
  return options.num_draft_tokens > 0 ? options.num_draft_tokens : kDefaultDraftTokens;
}

TreeShape tree_shape(const SpeculativeOptions& options) {
  return {.topk = options.eagle_topk,
          .num_steps = options.num_steps,
          .num_drafts = num_draft_tokens(options) - 1};
}

Status check_tree_shape(const SpeculativeOptions& options) {
  if (options.eagle_topk < 1 || options.eagle_topk > kMostBranches) {
    return invalid_argument(
        fmt::format("eagle_topk {} is not within 1 to {}", options.eagle_topk, kMostBranches));
  }
  if (options.eagle_topk == 1) return {};
  if (options.algorithm == DraftAlgorithm::kNone) {
    return invalid_argument(
        fmt::format("eagle_topk {} branches drafts; with none there are none", options.eagle_topk));
  }
  if (options.algorithm == DraftAlgorithm::kNgram) {
    if (options.num_draft_tokens > 0) return {};
    return invalid_argument(fmt::format(
        "eagle_topk {} branches all drafts of a step: with ngram it needs num_draft_tokens",
        options.eagle_topk));
  }
  if (options.algorithm == DraftAlgorithm::kStandalone) {
    return invalid_argument(fmt::format(
        "eagle_topk {} branches drafts; a standalone model drafts chains, with eagle_topk 1",
        options.eagle_topk));
  }
  if (options.num_steps < 1 || options.num_draft_tokens == 0) {
    return invalid_argument(fmt::format(
        "eagle_topk {} needs speculative.num_steps and num_draft_tokens, they are {} and {}",
        options.eagle_topk, options.num_steps, options.num_draft_tokens));
  }
  TreeShape shape = tree_shape(options);
  // Checks the number of drafts even if it is not known yet which drafter there is.
  shape.num_drafts = options.num_draft_tokens - 1;
  if (shape.num_drafts > shape.num_candidates()) {
    return invalid_argument(
        fmt::format("num_draft_tokens {} is more than the next token and the {} that {} steps of "
                    "eagle_topk {} find",
                    options.num_draft_tokens, shape.num_candidates(), shape.num_steps, shape.topk));
  }
  if (shape.num_branches() > DraftTree::kMaxNodes) {
    return invalid_argument(fmt::format(
        "speculative.num_steps {} with eagle_topk {} go on from {} branches, at most {} fit",
        shape.num_steps, shape.topk, shape.num_branches(), DraftTree::kMaxNodes));
  }
  return {};
}

int64_t max_draft_rows(const SpeculativeOptions& options) {
  const int32_t tokens = num_draft_tokens(options);
  return tokens == 0 ? kMostForcedRows : std::max<int64_t>(tokens, kMostDraftRows);
}

int64_t num_guess_states(int64_t max_sequences) {
  return std::min<int64_t>(max_sequences, kMostDraftRows / 2);
}

}  // namespace heddle::speculative
