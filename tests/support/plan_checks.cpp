// SPDX-License-Identifier: Apache-2.0
#include "support/plan_checks.h"

#include <algorithm>
#include <ranges>
#include <set>

#include <fmt/format.h>

namespace heddle::testing {

namespace {

using request::BatchPlan;
using request::Move;
using request::MoveKind;
using request::PlannedSequence;
using request::PlannedSnapshot;

class PlanChecker {
 public:
  PlanChecker(const BatchPlan& plan, const runner::PoolSizes& sizes,
              const request::StepLimits& limits, const request::BatchSlots& slots,
              std::vector<std::string>& complaints)
      : plan_(plan), sizes_(sizes), limits_(limits), slots_(slots), complaints_(complaints) {}

  bool check() {
    expect(!plan_.sequences.empty(), "an empty plan");
    expect(plan_.num_rows() <= limits_.max_tokens, fmt::format("{} rows", plan_.num_rows()));
    expect(std::ssize(plan_.sequences) <= sizes_.max_sequences,
           fmt::format("{} sequences", plan_.sequences.size()));
    int64_t draft_rows = 0;
    for (const PlannedSequence& sequence : plan_.sequences) {
      if (!sequence.drafts.empty()) draft_rows += sequence.drafts.count + 1;
    }
    expect(draft_rows <= limits_.max_draft_rows,
           fmt::format("{} rows of sequences with drafts", draft_rows));
    expect(plan_.num_scored_rows() <= limits_.max_scored_rows,
           fmt::format("{} scored rows", plan_.num_scored_rows()));
    check_moves();
    for (const PlannedSequence& sequence : plan_.sequences) check_sequence(sequence);
    check_pages();
    for (uint32_t table = 1; table < sizes_.num_page_tables(); ++table) check_table(table);
    check_slots();
    return can_run_;
  }

 private:
  void expect(bool holds, std::string what) {
    if (!holds) complaints_.push_back(std::move(what));
  }

  // As expect(), but a step without it is not carried out at all.
  void require(bool holds, std::string what) {
    can_run_ = can_run_ && holds;
    expect(holds, std::move(what));
  }

  [[nodiscard]] bool is_page(int32_t page) const { return page >= 1 && page <= sizes_.num_pages; }

  [[nodiscard]] bool is_page(int32_t page, uint32_t table) const {
    if (table == 0) return is_page(page);
    return page >= 1 && page <= sizes_.windows[table - 1].num_pages;
  }

  [[nodiscard]] bool is_slot(int32_t slot) const {
    return slot >= 1 && slot <= sizes_.num_state_slots;
  }

  // Where snapshots share the state slots, only their use tells them from working ones.
  [[nodiscard]] bool has_own_snapshot_slots() const { return sizes_.num_snapshot_slots > 0; }

  [[nodiscard]] bool is_snapshot_slot(int32_t slot) const {
    return slot >= 1 && slot <= sizes_.max_snapshot_slot();
  }

  [[nodiscard]] const std::vector<int32_t>& pages_of(const PlannedSequence& sequence) const {
    return slots_[sequence.batch_slot].pages[0].ids;
  }

  static std::string name(const PlannedSequence& sequence) {
    return fmt::format("sequence {}", sequence.sequence_id);
  }

  void check_moves() {
    expect(std::ranges::is_sorted(plan_.moves, {}, &Move::order), "moves out of order");
    std::set<std::tuple<MoveKind, uint32_t, int32_t>> filled;
    for (const Move& move : plan_.moves) {
      const auto [kind, table, from, to] = move;
      switch (kind) {
        case MoveKind::kReleasePage:
          require(table == 0 && is_page(from), "an unused page is out of range");
          continue;
        case MoveKind::kReleaseSnapshot:
          require_snapshot_slots();
          require(is_snapshot_slot(from), "an unused snapshot slot is out of range");
          continue;
        case MoveKind::kReleaseState:
          require(is_slot(from), "an unused state slot is out of range");
          continue;
        case MoveKind::kZero:
          require(is_slot(to), "a zeroed state slot is out of range");
          break;
        case MoveKind::kSave:
          require_snapshot_slots();
          require(is_slot(from) && is_snapshot_slot(to),
                  fmt::format("state slot {} is saved to {}", from, to));
          snapshots_.insert(to);
          break;
        case MoveKind::kRestore:
          require(is_snapshot_slot(from) && is_slot(to) && (from != to || has_own_snapshot_slots()),
                  fmt::format("state slot {} is copied to {}", from, to));
          break;
        case MoveKind::kCopyPage:
          require(table < sizes_.num_page_tables() && is_page(from, table) && is_page(to, table) &&
                      from != to,
                  fmt::format("page {} is copied to {}", from, to));
          break;
      }
      const bool zeroes = kind == MoveKind::kZero;
      expect(filled.emplace(zeroes ? MoveKind::kRestore : kind, table, to).second,
             fmt::format("{} {} is {} twice", target_of(kind), to, zeroes ? "zeroed" : "filled"));
    }
    for (const Move& move : plan_.moves) {
      const bool copies_state = move.kind == MoveKind::kRestore && !has_own_snapshot_slots();
      if (move.kind != MoveKind::kCopyPage && !copies_state) continue;
      expect(
          !filled.contains({move.kind, move.table, move.from}),
          fmt::format("{} {} is filled and copied in one step", target_of(move.kind), move.from));
    }
  }

  static const char* target_of(MoveKind kind) {
    if (kind == MoveKind::kCopyPage) return "page";
    return kind == MoveKind::kSave ? "snapshot slot" : "state slot";
  }

  void require_snapshot_slots() {
    require(has_own_snapshot_slots(), "there are no snapshot slots apart");
  }

  [[nodiscard]] bool is_zeroed(int32_t slot) const {
    return std::ranges::any_of(plan_.moves_of(MoveKind::kZero),
                               [slot](const Move& move) { return move.to == slot; });
  }

  void check_sequence(const PlannedSequence& sequence) {
    const std::string named = name(sequence);
    const int64_t begin = sequence.context_tokens;
    const int64_t end = begin + sequence.num_rows();
    expect(ids_.insert(sequence.sequence_id).second, named + " is in it twice");
    require(begin >= 0, named + " has a negative context");
    if (sequence.hidden_slot == 0) {
      expect(sequence.num_new_tokens() > 0, named + " has nothing to compute");
    } else {
      require(sizes_.keeps_hidden && is_snapshot_slot(sequence.hidden_slot),
              named + " has a hidden slot out of range");
      expect(sequence.num_new_tokens() == 0, named + " has a hidden slot and tokens to compute");
      expect(sequence.sample, named + " has a hidden slot and draws nothing");
    }
    expect(sequence.drafts.empty() || (sequence.sample && sequence.num_new_tokens() > 0),
           named + " has drafts that follow nothing");
    expect(sequence.draft_parents.empty() || sequence.draft_parents.count == sequence.drafts.count,
           named + " has parents of other drafts");
    int32_t index = 0;
    for (const int32_t parent : plan_.parents_of_drafts(sequence)) {
      expect(parent >= -1 && parent < index, named + " has a draft before its parent");
      ++index;
    }
    expect(sequence.masks.count % (sequence.drafts.count + 1) == 0,
           named + " has masks for other draws than those behind its token and its drafts");
    expect(sequence.masks.empty() || (sequence.sample && !sequence.feeds_drawn_token),
           named + " has a mask for a token that does not follow a known one");
    const request::PlanRange scored = sequence.scored;
    const int32_t known = sequence.new_tokens.count - (sequence.sample ? 1 : 0);
    require(scored.empty() || (scored.begin >= 0 && scored.begin + scored.count <= known &&
                               !sequence.feeds_drawn_token),
            named + " scores tokens that the plan does not have");
    // A scheduler without shared KV rows leaves kv_tokens at 0.
    expect(sequence.kv_tokens == 0 || sequence.kv_tokens >= begin,
           named + " would write rows of its context again");
    const int64_t most = limits_.short_rope_tokens;
    const bool outgrown = most > 0 && end > most;
    expect(outgrown <= sequence.takes_long_rope, named + " has outgrown its table of longrope");
    const bool draws_early = sequence.sample && begin + sequence.num_new_tokens() <= most;
    expect(!sequence.takes_long_rope || (most > 0 && !draws_early),
           named + " takes the second table of longrope too early");
    const std::vector<int32_t>& pages = pages_of(sequence);
    require(std::ssize(pages) * sizes_.page_size >= end, named + " lacks pages");
    require(std::all_of(pages.begin(), pages.end(), [this](int32_t page) { return is_page(page); }),
            named + " has a page out of range");
    for (uint32_t table = 1; table < sizes_.num_page_tables(); ++table) {
      check_window(sequence, end, table);
    }
    expect(std::ranges::is_sorted(slots_[sequence.batch_slot].ending_tokens),
           named + " has unsorted ending tokens");
    check_batch_slot(sequence);
    if (sizes_.num_state_slots == 0) {
      expect(sequence.state_slot == 0, named + " has a state slot");
      expect(sequence.snapshots.empty(), named + " has snapshots");
    } else {
      check_state(sequence);
    }
  }

  // Index of the first page that the sequence reads or writes in a table with a window.
  [[nodiscard]] int64_t first_page(const PlannedSequence& sequence, uint32_t table) const {
    return sizes_.windows[table - 1].first_page(sequence.context_tokens, sizes_.page_size);
  }

  // From the page of the first token that the first new one sees to that of the last new one.
  void check_window(const PlannedSequence& sequence, int64_t end, uint32_t table) {
    const int64_t first = first_page(sequence, table);
    const request::PageList& window = slots_[sequence.batch_slot].pages[table];
    // A step that computes nothing behind a whole page needs none.
    const bool covered =
        first * sizes_.page_size >= end ||
        (window.first <= first && std::ssize(window.ids) * sizes_.page_size >= end);
    require(covered, fmt::format("{} lacks pages of table {}", name(sequence), table));
    if (!covered) return;
    const auto seen = window.ids | std::views::drop(first);  // none where none are needed
    require(std::ranges::all_of(seen, [&](int32_t page) { return is_page(page, table); }),
            fmt::format("{} has a page of table {} out of range", name(sequence), table));
  }

  // A page of a table with a window that a sequence writes is used by no other one.
  void check_table(uint32_t table) {
    std::vector<int> num_users(static_cast<size_t>(sizes_.windows[table - 1].num_pages + 1));
    for (const PlannedSequence& sequence : plan_.sequences) {
      const std::vector<int32_t>& pages = slots_[sequence.batch_slot].pages[table].ids;
      for (auto i = static_cast<size_t>(first_page(sequence, table)); i < pages.size(); ++i) {
        if (is_page(pages[i], table)) ++num_users[static_cast<size_t>(pages[i])];
      }
    }
    for (const PlannedSequence& sequence : plan_.sequences) {
      const int64_t written = sequence.context_tokens / sizes_.page_size;
      const std::vector<int32_t>& pages = slots_[sequence.batch_slot].pages[table].ids;
      for (int64_t i = written; i < std::ssize(pages); ++i) {
        const int32_t page = pages[static_cast<size_t>(i)];
        if (!is_page(page, table)) continue;
        if (sequence.num_new_tokens() == 0) continue;
        expect(num_users[static_cast<size_t>(page)] == 1,
               fmt::format("{} writes page {} of table {}, which others use", name(sequence), page,
                           table));
      }
    }
  }

  void check_batch_slot(const PlannedSequence& sequence) {
    expect(batch_slots_.insert(sequence.batch_slot).second,
           name(sequence) + " shares a batch slot");
  }

  void check_state(const PlannedSequence& sequence) {
    const std::string named = name(sequence);
    require(is_slot(sequence.state_slot), named + " has a state slot out of range");
    expect(is_zeroed(sequence.state_slot) == (sequence.context_tokens == 0),
           named + " is zeroed at the wrong time");
    const int64_t end = sequence.context_tokens + sequence.num_rows();
    int64_t last = sequence.context_tokens;
    for (const PlannedSnapshot& snapshot : plan_.snapshots_of(sequence)) {
      require(is_snapshot_slot(snapshot.slot), named + " has a snapshot slot out of range");
      expect(snapshot.tokens > sequence.context_tokens && snapshot.tokens <= end,
             fmt::format("{} has a snapshot after {} tokens, the step computes {} to {}", named,
                         snapshot.tokens, sequence.context_tokens, end));
      expect(snapshot.tokens > last, named + " has snapshots out of order");
      last = snapshot.tokens;
      const bool at_end = snapshot.tokens == end && sequence.drafts.empty();
      expect(!snapshot.keep_hidden || (sizes_.keeps_hidden && at_end),
             fmt::format("{} cannot keep a hidden vector after {} tokens", named, snapshot.tokens));
    }
  }

  // A page that a sequence writes is its own: no other one reads or writes it in this step.
  void check_pages() {
    struct Use {
      const PlannedSequence* sequence = nullptr;
      bool writes = false;
      int num_users = 0;
    };

    std::vector<Use> uses(static_cast<size_t>(sizes_.num_pages + 1));
    for (const PlannedSequence& sequence : plan_.sequences) {
      const int64_t end = sequence.context_tokens + sequence.num_rows();
      const int64_t first_written = std::max(sequence.context_tokens, sequence.kv_tokens);
      const std::vector<int32_t>& pages = pages_of(sequence);
      for (int64_t i = 0; i < std::ssize(pages); ++i) {
        const int32_t page = pages[static_cast<size_t>(i)];
        if (!is_page(page)) continue;
        const bool writes = first_written < (i + 1) * sizes_.page_size &&
                            end > i * sizes_.page_size && first_written < end;
        Use& use = uses[static_cast<size_t>(page)];
        if (use.num_users++ > 0) {
          expect(use.sequence != &sequence, name(sequence) + " has a page twice");
          expect(!writes && !use.writes,
                 fmt::format("{} shares page {} with sequence {}, and it is written",
                             name(sequence), page, use.sequence->sequence_id));
        }
        use.sequence = &sequence;
        use.writes |= writes;
      }
    }
    for (const Move& copy : plan_.moves_of(MoveKind::kCopyPage)) {
      if (copy.table != 0 || !is_page(copy.to)) continue;
      const int num_users = uses[static_cast<size_t>(copy.to)].num_users;
      expect(num_users == 1,
             fmt::format("page {} is filled by a copy and has {} users", copy.to, num_users));
    }
    for (const Move& move : plan_.moves_of(MoveKind::kReleasePage)) {
      const int32_t page = move.from;
      if (is_page(page) && uses[static_cast<size_t>(page)].num_users > 0) check_unused(page);
    }
  }

  // Unused ids may come back into use in the same step, but only as something freshly written.
  void check_unused(int32_t page) {
    const bool copied =
        std::ranges::any_of(plan_.moves_of(MoveKind::kCopyPage),
                            [&](const Move& copy) { return copy.table == 0 && copy.to == page; });
    for (const PlannedSequence& sequence : plan_.sequences) {
      const int64_t first_written = std::max(sequence.context_tokens, sequence.kv_tokens);
      const std::vector<int32_t>& pages = pages_of(sequence);
      for (int64_t i = 0; i * sizes_.page_size < first_written && i < std::ssize(pages); ++i) {
        expect(pages[static_cast<size_t>(i)] != page || copied,
               fmt::format("{} reads page {}, which is reported unused", name(sequence), page));
      }
    }
  }

  // A slot that is written in this step has one user.
  void check_slots() {
    if (sizes_.num_state_slots == 0) return;
    std::set<int32_t> working;
    for (const PlannedSequence& sequence : plan_.sequences) {
      expect(working.insert(sequence.state_slot).second, name(sequence) + " shares a state slot");
    }
    std::set<int32_t> written = has_own_snapshot_slots() ? snapshots_ : working;
    for (const PlannedSequence& sequence : plan_.sequences) {
      for (const PlannedSnapshot& snapshot : plan_.snapshots_of(sequence)) {
        expect(written.insert(snapshot.slot).second,
               fmt::format("{} has a snapshot in slot {}, which is in use", name(sequence),
                           snapshot.slot));
        expect(has_own_snapshot_slots() || !is_zeroed(snapshot.slot),
               fmt::format("{} has a snapshot in slot {}, which is zeroed", name(sequence),
                           snapshot.slot));
      }
    }
    for (const Move& copy : plan_.moves_of(MoveKind::kRestore)) {
      expect(written.count(copy.from) == 0 || snapshots_.count(copy.from) != 0,
             fmt::format("state slot {} is copied and written in one step", copy.from));
      expect(working.count(copy.to) != 0,
             fmt::format("state slot {} is filled for no sequence", copy.to));
    }
    for (const PlannedSequence& sequence : plan_.sequences) {
      if (sequence.hidden_slot == 0) continue;
      const auto is_target = [&](const PlannedSequence& other) {
        return std::ranges::any_of(plan_.snapshots_of(other), [&](const PlannedSnapshot& point) {
          return point.slot == sequence.hidden_slot;
        });
      };
      expect(std::none_of(plan_.sequences.begin(), plan_.sequences.end(), is_target),
             name(sequence) + " has a hidden slot that is written in this step");
    }
  }

  const BatchPlan& plan_;
  const runner::PoolSizes& sizes_;
  const request::StepLimits& limits_;
  const request::BatchSlots& slots_;
  std::vector<std::string>& complaints_;
  std::set<int64_t> ids_;
  std::set<int32_t> batch_slots_;
  std::set<int32_t> snapshots_;  // that saves at the head fill; a copy may follow at once
  bool can_run_ = true;
};

}  // namespace

bool check_plan(const BatchPlan& plan, const runner::PoolSizes& sizes,
                const request::StepLimits& limits, const request::BatchSlots& slots,
                std::vector<std::string>& complaints) {
  return PlanChecker(plan, sizes, limits, slots, complaints).check();
}

}  // namespace heddle::testing
