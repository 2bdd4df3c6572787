// SPDX-License-Identifier: Apache-2.0
#include "scenario.h"

#include <algorithm>

#include <fmt/format.h>

#include "dice.h"
#include "forcing_form.h"
#include "support/byte_tokenizer.h"

namespace heddle::oracle {

namespace {

using Tokens = std::vector<TokenId>;

constexpr TokenId kLetters = 3;

// Makes a scenario part by part; each reads what those before it decided.
class ScenarioMaker {
 public:
  explicit ScenarioMaker(uint64_t seed)
      : dice_(seed),
        window_dice_(~seed),
        draft_dice_(seed ^ 0x5eed),
        form_dice_(seed ^ 0xf023),
        rope_dice_(seed ^ 0x409e) {
    scenario_.seed = seed;
  }

  Scenario make() {
    is_crowded_ = dice_.percent(30);
    choose_cache();
    choose_model();
    choose_scheduling();
    choose_windows();
    choose_drafts();
    choose_forms();
    if (rope_dice_.percent(30)) {
      scenario_.limits.short_rope_tokens = rope_dice_.between(1, 5 * scenario_.grid);
    }
    choose_stems();
    const int64_t num_requests = dice_.percent(8) ? dice_.between(12, 30) : dice_.between(2, 12);
    while (std::ssize(scenario_.arrivals) < num_requests) add_arrival();
    choose_pools();
    choose_snapshot_slots();
    if (dice_.percent(5)) scenario_.restart_step = dice_.between(1, 60);
    if (dice_.percent(4)) scenario_.failing_step = dice_.between(1, 60);
    choose_pauses();
    if (dice_.percent(20)) choose_clears();
    return std::move(scenario_);
  }

 private:
  // The grid of the product is 64, or the page if that is larger. Prompts are counted in it.
  void choose_cache() {
    CacheOptions& cache = scenario_.cache;
    cache.enabled = !dice_.percent(10);
    using enum SnapshotPolicy;
    cache.state_snapshots =
        dice_.pick<SnapshotPolicy>({kMulti, kMulti, kMulti, kExtraBuffer, kNoBuffer});
    cache.eviction = dice_.pick<EvictionPolicy>(
        {EvictionPolicy::kFlops, EvictionPolicy::kFlops, EvictionPolicy::kLru});
    runner::PoolSizes& sizes = scenario_.sizes;
    sizes.page_size = dice_.percent(5) ? 128 : 1 << dice_.between(0, 6);
    if (cache.state_snapshots == kNoBuffer) sizes.page_size = 1;
    scenario_.grid = std::max<int64_t>(64, sizes.page_size);
    cache.snapshot_interval = static_cast<int32_t>(scenario_.grid * dice_.between(1, 3));
  }

  void choose_model() {
    scenario_.lazy = dice_.percent(50);
    AnswerRules& rules = scenario_.rules;
    rules.vocabulary = {
        .num_tokens = static_cast<TokenId>(dice_.between(is_crowded_ ? 16 : kLetters + 2, 24)),
        .seeded = dice_.percent(50)};
    if (dice_.percent(is_crowded_ ? 40 : 70))
      rules.eos_token_ids = {rules.vocabulary.num_tokens - 1};
    rules.context_length = 8 * scenario_.grid;
    scenario_.seconds_per_step = dice_.pick({0.0, 0.01, 0.1, 0.4});
  }

  void choose_scheduling() {
    SchedulingOptions& options = scenario_.scheduling;
    options.policy = dice_.pick({QueuePolicy::kFcfs, QueuePolicy::kFcfs, QueuePolicy::kFcfs,
                                 QueuePolicy::kLpm, QueuePolicy::kLpm, QueuePolicy::kDfsWeight,
                                 QueuePolicy::kLof, QueuePolicy::kRandom, QueuePolicy::kRoutingKey,
                                 QueuePolicy::kHrrn, QueuePolicy::kShortestPrefillFirst,
                                 QueuePolicy::kFair, QueuePolicy::kPriority});
    options.conservativeness =
        is_crowded_ ? dice_.pick({0.01, 0.1}) : dice_.pick({0.1, 0.5, 1.0, 1.0, 1.5});
    options.mixed_batches = dice_.percent(70);
    options.overlap = dice_.percent(70);
    options.prefills_per_decode = static_cast<int32_t>(dice_.between(0, 3));
    if (dice_.percent(20)) {
      options.max_prefill_tokens = static_cast<int32_t>(dice_.between(1, 3 * scenario_.grid));
    }
    if (dice_.percent(25)) options.target_itl_ms = dice_.pick({1.0, 30.0, 150.0, 1000.0});
    const bool takes_priorities = options.policy == QueuePolicy::kFcfs ||
                                  options.policy == QueuePolicy::kLof ||
                                  options.policy == QueuePolicy::kFair;
    options.enable_priority = takes_priorities && dice_.percent(40);
    has_priorities_ = options.enable_priority || options.policy == QueuePolicy::kPriority;
    options.low_values_first = dice_.percent(30);
    if (dice_.percent(50)) options.default_priority = dice_.between(0, 30);
    options.preemption = dice_.percent(80);
    options.preemption_threshold = dice_.pick<int64_t>({0, 2, 10});
    options.max_preemptions = static_cast<int32_t>(dice_.between(1, 3));
    options.preemption_min_run_seconds = dice_.pick({0.0, 0.0, 0.2});
    options.aging_seconds = dice_.pick({0.0, 0.0, 1.0});
    if (has_priorities_ && !options.default_priority) options.aging_seconds = 0;
    choose_limits();
    scenario_.chunked_prefill_tokens =
        dice_.percent(25) ? dice_.between(1, scenario_.grid) : dice_.between(1, 6) * 64;
  }

  // Layers that slide beside one that does not: of one window or, at times, of two.
  void choose_windows() {
    if (window_dice_.percent(50)) return;
    const int64_t most = window_dice_.percent(30) ? 8 : 3 * scenario_.grid;
    scenario_.rules.windows = {window_dice_.between(1, most)};
    if (window_dice_.percent(25)) {
      scenario_.rules.windows.push_back(scenario_.rules.windows[0] + window_dice_.between(1, most));
    }
    for (const int64_t window : scenario_.rules.windows) {
      scenario_.sizes.windows.push_back({.window = window});
    }
  }

  // The reserve of all sequences, and often little more.
  void choose_pages_of_windows() {
    runner::PoolSizes& sizes = scenario_.sizes;
    for (cache::PageWindow& window : sizes.windows) {
      const int64_t least = sizes.max_sequences * window.per_sequence(sizes.page_size);
      window.num_pages =
          least + window_dice_.pick<int64_t>({0, 1, window_dice_.between(0, least), 8 * least});
    }
  }

  void choose_drafts() {
    if (draft_dice_.percent(50)) return;
    scenario_.drafts = draft_dice_.pick({Drafts::kRight, Drafts::kWrong, Drafts::kRandom,
                                         Drafts::kOftenRight, Drafts::kOftenRight});
    scenario_.max_drafts = draft_dice_.pick<int64_t>({1, 2, 3, 7, 15});
    scenario_.limits.max_draft_rows =
        (scenario_.max_drafts + 1) * draft_dice_.pick<int64_t>({1, 2, 6});
    if (draft_dice_.percent(50)) scenario_.limits.max_made_drafts = scenario_.max_drafts;
    scenario_.branches_drafts = draft_dice_.percent(50);
    if (scenario_.branches_drafts && scenario_.limits.max_made_drafts > 0) {
      scenario_.limits.draft_topk = draft_dice_.pick<int32_t>({2, 4});
      scenario_.limits.draft_steps = draft_dice_.pick<int32_t>({1, 3, 5});
    }
    scenario_.limits.drafter_reads_texts = scenario_.limits.max_made_drafts > 0 &&
                                           !scenario_.branches_drafts && draft_dice_.percent(50);
  }

  // Forms force tokens with a drafter and without: there are rows for them in either case.
  void choose_forms() {
    has_forms_ = form_dice_.percent(30);
    if (!has_forms_ || scenario_.limits.max_draft_rows > 0) return;
    scenario_.limits.max_draft_rows = form_dice_.pick<int64_t>({0, 2, 5, 32});
  }

  void choose_limits() {
    SchedulingOptions& options = scenario_.scheduling;
    if (dice_.percent(12)) {
      scenario_.limits_queue = true;
      scenario_.max_queued_requests = static_cast<int32_t>(dice_.between(1, 4));
      if (dice_.percent(50)) options.max_queued_tokens = dice_.between(1, 6 * scenario_.grid);
      if (dice_.percent(50)) options.tenant_max_queued = static_cast<int32_t>(dice_.between(1, 3));
    }
    if (dice_.percent(20)) options.tenant_max_running = static_cast<int32_t>(dice_.between(1, 2));
    if (dice_.percent(12)) {
      scenario_.limits_time = true;
      if (dice_.percent(50)) options.queue_timeout_seconds = dice_.pick({0.05, 1.0, 5.0});
      if (dice_.percent(50)) options.running_timeout_seconds = dice_.pick({0.05, 1.0, 5.0});
    }
    options.cache_aware_max_wait_seconds = dice_.pick({0.0, 1.0, 5.0});
  }

  Tokens letters(int64_t count) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(dice_.between(0, kLetters - 1)));
    }
    return tokens;
  }

  // A length near a multiple of the grid, or any.
  int64_t length(int64_t most) {
    if (dice_.percent(40)) return dice_.between(1, most);
    const int64_t grid = scenario_.grid;
    const int64_t near = dice_.between(0, std::max<int64_t>(most / grid, 1)) * grid;
    return std::clamp<int64_t>(near + dice_.between(-2, 2), 1, most);
  }

  // Later stems fork off earlier ones.
  void choose_stems() {
    const int64_t num_stems = dice_.between(1, 3);
    for (int64_t i = 0; i < num_stems; ++i) {
      Tokens stem;
      if (i > 0 && dice_.percent(70)) {
        stem = stems_.back();
        stem.resize(static_cast<size_t>(length(std::ssize(stem))));
      }
      const Tokens rest = letters(dice_.between(1, 3 * scenario_.grid));
      stem.insert(stem.end(), rest.begin(), rest.end());
      stems_.push_back(std::move(stem));
    }
    num_namespaces_ = dice_.percent(20) ? 2 : 1;
  }

  void append(Tokens& tokens, std::span<const TokenId> more, int64_t count) {
    more = more.first(static_cast<size_t>(std::clamp<int64_t>(count, 0, std::ssize(more))));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }

  Tokens make_prompt() {
    const int64_t grid = scenario_.grid;
    const int64_t kind = scenario_.arrivals.empty() ? 0 : dice_.between(0, 99);
    Tokens prompt;
    if (kind < 40) {  // a stem, all or part of it
      const Tokens& stem = stems_[static_cast<size_t>(dice_.between(0, std::ssize(stems_) - 1))];
      append(prompt, stem, dice_.percent(50) ? std::ssize(stem) : length(std::ssize(stem)));
      append(prompt, letters(length(grid)), dice_.pick<int64_t>({0, 3, grid}));
    } else if (kind < 55) {  // the same again
      prompt = prompt_of_[static_cast<size_t>(dice_.between(0, std::ssize(prompt_of_) - 1))].first;
    } else if (kind < 85) {  // the next turn
      const auto& [earlier_prompt, earlier_answer] =
          prompt_of_[static_cast<size_t>(dice_.between(0, std::ssize(prompt_of_) - 1))];
      prompt = earlier_prompt;
      const int64_t all = std::ssize(earlier_answer);
      append(prompt, earlier_answer, all - dice_.pick<int64_t>({0, 0, 0, 1, 5}));
      append(prompt, letters(length(grid)), dice_.pick<int64_t>({0, 1, 10, grid}));
    } else if (kind < 95) {  // an earlier one, cut
      prompt = prompt_of_[static_cast<size_t>(dice_.between(0, std::ssize(prompt_of_) - 1))].first;
      prompt.resize(static_cast<size_t>(length(std::ssize(prompt))));
    } else {
      prompt = letters(length(3 * grid));
    }
    if (prompt.empty()) prompt = letters(1);
    const int64_t most = (is_crowded_ ? 1 : 6) * grid;
    if (std::ssize(prompt) > most) prompt.resize(static_cast<size_t>(most));
    return prompt;
  }

  StopConditions make_stop() {
    StopConditions stop;
    stop.max_new_tokens = dice_.pick<int64_t>({0, 1, 2, 3, 5, 8, 12, 20, 30});
    if (dice_.percent(is_crowded_ ? 85 : 8)) {
      stop.max_new_tokens = dice_.between(20, scenario_.grid * (is_crowded_ ? 3 : 2));
    }
    if (dice_.percent(15)) stop.min_new_tokens = dice_.between(0, stop.max_new_tokens);
    stop.ignore_eos = dice_.percent(is_crowded_ ? 80 : 25);
    stop.keep_stop_text = dice_.percent(20);
    const TokenId last = scenario_.rules.vocabulary.num_tokens - 1;
    if (dice_.percent(is_crowded_ ? 5 : 25)) {
      stop.token_ids = {static_cast<TokenId>(dice_.between(kLetters, last))};
    }
    while (dice_.percent(is_crowded_ ? 3 : 20)) {
      std::string text;
      for (int64_t i = dice_.between(1, 2); i > 0; --i) {
        text += static_cast<char>(dice_.between(0, last));
      }
      stop.texts.push_back(text);
    }
    return stop;
  }

  void add_arrival() {
    Arrival arrival;
    Request& request = arrival.request;
    request.id = fmt::format("r{}", scenario_.arrivals.size());
    request.prompt = make_prompt();
    request.stop = make_stop();
    request.sampling.seed = static_cast<uint64_t>(dice_.between(0, 2));
    if (has_priorities_ && dice_.percent(80)) {
      request.priority = dice_.between(0, 30);
    }
    request.tenant = dice_.pick<const char*>({"", "one", "two"});
    request.routing_key = dice_.pick<const char*>({"", "x", "y"});
    if (dice_.between(1, num_namespaces_) == 2) request.cache_namespace = "other";
    for (int64_t at = dice_.between(0, 400); at < std::ssize(request.prompt);
         at += dice_.between(1, 200)) {
      request.role_boundaries.push_back(at);
    }
    if (has_forms_ && form_dice_.percent(60)) {
      request.constraint = std::make_shared<ForcingForm>(form_dice_.next(), kLetters,
                                                         scenario_.rules.vocabulary.num_tokens,
                                                         testing::ByteTokenizer::kVocabSize);
    }
    arrival.answer = answer_alone(request, scenario_.rules);
    const int64_t burst = dice_.percent(is_crowded_ ? 80 : 40) ? 0 : dice_.between(0, 25);
    clock_step_ += burst;
    arrival.step = clock_step_;
    if (dice_.percent(10)) arrival.cancel_after = dice_.between(0, 20);
    if (dice_.percent(4)) arrival.cancel_at = dice_.between(1, 10);
    if (!scenario_.arrivals.empty() && dice_.percent(15)) {
      arrival.follows = dice_.between(0, std::ssize(scenario_.arrivals) - 1);
    }
    if (scenario_.limits_time && dice_.percent(40)) {
      request.deadline_seconds = dice_.pick({0.02, 0.5, 3.0});
    }
    if (dice_.percent(10)) request.ttft_slo_seconds = dice_.pick({0.01, 1.0});
    request.return_logprobs = dice_.percent(20);
    request.top_logprobs = request.return_logprobs ? 3 : 0;
    if (dice_.percent(4)) {
      arrival.failing_draw = dice_.between(0, request.stop.max_new_tokens);
    }
    prompt_of_.emplace_back(request.prompt, arrival.answer.tokens);
    scenario_.arrivals.push_back(std::move(arrival));
  }

  void choose_pauses() {
    while (dice_.percent(12)) {
      const int64_t step = dice_.between(0, 60);
      scenario_.pauses.push_back(
          {.mode = dice_.pick({PauseMode::kInPlace, PauseMode::kInPlace, PauseMode::kRetract,
                               PauseMode::kRetract, PauseMode::kRetract, PauseMode::kAbort}),
           .step = step,
           .until = step + dice_.between(1, 10)});
    }
  }

  // Every request fits alone; most of the time not all fit at once.
  void choose_pools() {
    runner::PoolSizes& sizes = scenario_.sizes;
    int64_t most_tokens = 1;
    for (const Arrival& arrival : scenario_.arrivals) {
      most_tokens = std::max<int64_t>(
          most_tokens, std::ssize(arrival.request.prompt) + arrival.request.stop.max_new_tokens);
    }
    const int64_t needed = (most_tokens + sizes.page_size - 1) / sizes.page_size + 1;
    const int64_t kind = dice_.between(0, is_crowded_ ? 6 : 9);
    sizes.num_pages = kind < 3   ? needed + dice_.between(0, 2)
                      : kind < 7 ? needed + dice_.between(0, 2 * needed)
                                 : needed * 12;
    const bool needs_state = !dice_.percent(12);
    sizes.num_state_slots = !needs_state        ? 0
                            : dice_.percent(60) ? dice_.between(1, 8)
                                                : dice_.between(8, 40);
    sizes.keeps_hidden = needs_state && dice_.percent(80);
    // Room for every request alone: its pages, and a few states for those that resume from a kept
    // one.
    if (dice_.percent(30)) {
      sizes.page_bytes = sizes.page_size * 3;
      sizes.state_slot_bytes = needs_state ? dice_.pick<int64_t>({100, 1000, 5000}) : 0;
      const int64_t least = needed * sizes.page_bytes + 4 * sizes.state_slot_bytes;
      const int64_t all =
          sizes.num_pages * sizes.page_bytes + sizes.num_state_slots * sizes.state_slot_bytes;
      if (least < all) sizes.shared_bytes = dice_.between(least, all);
    }
    sizes.max_sequences = static_cast<int32_t>(dice_.between(is_crowded_ ? 3 : 1, 6));
    choose_pages_of_windows();
    scenario_.limits.max_tokens =
        scenario_.chunked_prefill_tokens + (dice_.percent(80) ? sizes.max_sequences : 0);
  }

  void choose_clears() {
    int64_t step = 0;
    for (int64_t i = dice_.between(1, 4); i > 0; --i) {
      step += dice_.between(0, 40);
      scenario_.clears.push_back({step, dice_.pick({0.0, 0.5, 1000.0, 1000.0})});
    }
  }

  void choose_snapshot_slots() {
    runner::PoolSizes& sizes = scenario_.sizes;
    if (sizes.num_state_slots == 0 || !scenario_.cache.enabled || dice_.percent(60)) return;
    sizes.num_snapshot_slots = dice_.percent(60) ? dice_.between(1, 8) : dice_.between(8, 40);
    sizes.snapshot_slot_bytes = sizes.state_slot_bytes / 2;
  }

  Dice dice_;
  Dice window_dice_;  // apart, so that a seed asks for the same with and without a window
  Dice draft_dice_;   // likewise with and without drafts
  Dice form_dice_;    // likewise with and without forms of answers
  // Chooses one or two tables of rotary frequencies; separate, so that a seed makes the same other
  // choices with either.
  Dice rope_dice_;
  Scenario scenario_;
  std::vector<Tokens> stems_;
  std::vector<std::pair<Tokens, Tokens>> prompt_of_;  // prompts and answers so far
  bool is_crowded_ = false;  // long answers in small pools, and little set aside for them
  bool has_priorities_ = false;
  bool has_forms_ = false;
  int64_t num_namespaces_ = 1;
  int64_t clock_step_ = 0;
};

}  // namespace

Scenario make_scenario(uint64_t seed) { return ScenarioMaker(seed).make(); }

std::string Scenario::to_string() const {
  std::string text = fmt::format(
      "seed {}: {} pages of {}, {} of windows [{}], {} slots, {} for snapshots, {} of {} bytes, "
      "{} rows, {} step "
      "tokens, "
      "chunk {}, "
      "hidden {}, lazy {}; "
      "cache {} {} every {}, {}; {}, mixed {}, overlap {}, prefills per decode {}, max prefill {}, "
      "target {} ms, priority {}; EOS {}, {} tokens, restart {}, device lost {}, {} s a step, "
      "queue limited {}, "
      "time limited {}, pauses {}, drafts {} up to {}, {} by the device, branching {}, "
      "longrope beyond {}\n",
      seed, sizes.num_pages, sizes.page_size, sizes.num_pages_of_windows(),
      fmt::join(rules.windows, ", "), sizes.num_state_slots, sizes.num_snapshot_slots,
      sizes.shared_bytes,
      sizes.num_pages * sizes.page_bytes + sizes.num_state_slots * sizes.state_slot_bytes,
      sizes.max_sequences, limits.max_tokens, chunked_prefill_tokens, sizes.keeps_hidden, lazy,
      cache.enabled, heddle::to_string(cache.state_snapshots), cache.snapshot_interval,
      heddle::to_string(cache.eviction), heddle::to_string(scheduling.policy),
      scheduling.mixed_batches, scheduling.overlap, scheduling.prefills_per_decode,
      scheduling.max_prefill_tokens, scheduling.target_itl_ms, scheduling.enable_priority,
      rules.eos_token_ids.empty() ? -1 : rules.eos_token_ids[0], rules.vocabulary.num_tokens,
      restart_step, failing_step, seconds_per_step, limits_queue, limits_time, pauses.size(),
      static_cast<int>(drafts), max_drafts, limits.max_made_drafts, branches_drafts,
      limits.short_rope_tokens);
  for (const Clear& clear : clears) {
    text += fmt::format("  the cache is cleared at step {}, within {} s\n", clear.step,
                        clear.timeout_seconds);
  }
  for (const Arrival& arrival : arrivals) {
    const Request& request = arrival.request;
    text += fmt::format(
        "  {} at step {}: prompt {}, max new {}, min new {}, answers {} tokens, seed {}, "
        "namespace \"{}\", follows {}, cancelled after {} at {}, failing draw {}, form {}\n",
        request.id, arrival.step, request.prompt.size(), request.stop.max_new_tokens,
        request.stop.min_new_tokens, arrival.answer.tokens.size(), *request.sampling.seed,
        request.cache_namespace, arrival.follows, arrival.cancel_after, arrival.cancel_at,
        arrival.failing_draw, request.constraint != nullptr);
  }
  return text;
}

TokenId draft_of(Drafts drafts, TokenId right, TokenId num_tokens, Dice& dice) {
  const auto random = static_cast<TokenId>(dice.between(0, num_tokens - 1));
  switch (drafts) {
    case Drafts::kNone:
    case Drafts::kRight:
      return right;
    case Drafts::kWrong:
      return (right + 1) % num_tokens;
    case Drafts::kRandom:
      return random;
    case Drafts::kOftenRight:
      return dice.percent(85) ? right : random;
  }
  return right;
}

}  // namespace heddle::oracle
