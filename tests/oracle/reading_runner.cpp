// SPDX-License-Identifier: Apache-2.0
#include "reading_runner.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace heddle::oracle {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::StepOutput;

ReadingRunner::ReadingRunner(std::unique_ptr<runner::Runner> runner, uint64_t seed,
                             int64_t& rows_taken, std::vector<std::string>& complaints)
    : runner_(std::move(runner)),
      dice_(seed),
      rows_taken_(rows_taken),
      complaints_(complaints),
      slots_(pool_sizes().max_sequences, pool_sizes().num_pages),
      written_(pool_sizes().num_pages, pool_sizes().page_size, pool_sizes().max_sequences),
      rows_(static_cast<size_t>((pool_sizes().num_pages + 1) * pool_sizes().page_size), 0),
      texts_(static_cast<size_t>(pool_sizes().max_sequences)) {}

void ReadingRunner::Text::add(TokenId token) {
  Dice mixed((labels.empty() ? 1 : labels.back()) ^ (static_cast<uint64_t>(token) << 20));
  labels.push_back(mixed.next());
}

Status ReadingRunner::submit(const BatchPlan& plan) {
  HEDDLE_RETURN_IF_ERROR(runner_->submit(plan));
  plans_.push_back(&plan);
  return {};
}

Result<StepOutput> ReadingRunner::wait() {
  const BatchPlan& plan = *plans_.front();
  plans_.pop_front();
  HEDDLE_ASSIGN_OR_RETURN(StepOutput output, runner_->wait());
  HEDDLE_RETURN_IF_ERROR(follow(plan, output));
  return output;
}

uint64_t& ReadingRunner::row(int32_t batch_slot, int64_t token) {
  const int64_t page_size = pool_sizes().page_size;
  const int64_t page = slots_[batch_slot].pages[0].ids[static_cast<size_t>(token / page_size)];
  return rows_[static_cast<size_t>(page * page_size + token % page_size)];
}

Status ReadingRunner::follow(const BatchPlan& plan, const StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(slots_.take(plan));
  const auto page_size = pool_sizes().page_size;
  const auto rows_of = [&](int32_t page) {
    return std::span(rows_).subspan(static_cast<size_t>(page * page_size),
                                    static_cast<size_t>(page_size));
  };
  using request::MoveKind;
  for (const request::Move& move : plan.moves) {
    if (move.table != 0) continue;
    if (move.kind == MoveKind::kReleasePage) std::ranges::fill(rows_of(move.from), 0);
    if (move.kind == MoveKind::kCopyPage) {
      std::ranges::copy(rows_of(move.from), rows_of(move.to).begin());
    }
  }
  written_.take(plan);
  for (const request::SlotStart& one : plan.starts) start(plan, one);
  request::SpanReader<const SampledToken> spans(output.tokens);
  for (const PlannedSequence& sequence : plan.sequences) {
    const auto drawn =
        sequence.sample ? spans.next(sequence.sequence_id) : std::span<const SampledToken>();
    if (!drawn.empty() && drawn.front().skipped) continue;
    int64_t position = sequence.context_tokens;
    for (const TokenId token : plan.new_tokens(sequence)) add(sequence, position++, token);
    position = sequence.context_tokens + sequence.num_new_tokens();
    for (const SampledToken& token : drawn) {
      if (token.error.ok()) add(sequence, position++, token.token);
    }
  }
  if (!dice_.percent(60)) return {};
  for (const PlannedSequence& sequence : plan.sequences) {
    if (dice_.percent(70)) read(sequence);
  }
  return {};
}

void ReadingRunner::start(const BatchPlan& plan, const request::SlotStart& start) {
  Text& text = this->text(start.batch_slot);
  text.labels.clear();
  for (const TokenId token : plan.context_of(start)) text.add(token);
  const int64_t written = written_.count(slots_[start.batch_slot].pages[0].ids);
  text.num_read = std::min(written, std::ssize(text.labels));
  rows_taken_ += text.num_read;
}

void ReadingRunner::add(const PlannedSequence& sequence, int64_t position, TokenId token) {
  Text& text = this->text(sequence.batch_slot);
  if (position < std::ssize(text.labels)) return;
  if (position > std::ssize(text.labels)) {
    complaints_.push_back(fmt::format("sequence {}: {} of its tokens are known, one at {} comes",
                                      sequence.sequence_id, text.labels.size(), position));
    return;
  }
  text.add(token);
}

void ReadingRunner::check(const PlannedSequence& sequence, int64_t num_rows) {
  const Text& text = this->text(sequence.batch_slot);
  for (int64_t i = 0; i < std::min(num_rows, std::ssize(text.labels)); ++i) {
    if (row(sequence.batch_slot, i) == text.labels[static_cast<size_t>(i)]) continue;
    complaints_.push_back(fmt::format("sequence {}: row {} of {} that count as read is not its own",
                                      sequence.sequence_id, i, num_rows));
    return;
  }
}

void ReadingRunner::read(const PlannedSequence& sequence) {
  Text& text = this->text(sequence.batch_slot);
  const std::vector<int32_t>& pages = slots_[sequence.batch_slot].pages[0].ids;
  const int64_t page_size = pool_sizes().page_size;
  const int64_t known = std::ssize(text.labels);
  const int64_t room = std::ssize(pages) * page_size;
  const int64_t counted = written_.count(pages, text.num_read);
  check(sequence, counted);
  const int64_t passed = std::max(std::min(counted, known - 1) - text.num_read, int64_t{0});
  text.num_read += passed;
  rows_taken_ += passed;
  int64_t end = std::min({known, room, text.num_read + dice_.between(1, 60)});
  if (end <= text.num_read) return;
  end = written_.unwritten_end(pages, counted, end);
  for (int64_t i = counted; i < end; ++i) {
    const auto page = static_cast<size_t>(i / page_size);
    if (written_.count(std::span(pages).subspan(page, 1)) > i % page_size) {
      complaints_.push_back(fmt::format(
          "sequence {}: row {} is written and may be read for another", sequence.sequence_id, i));
    }
    row(sequence.batch_slot, i) = text.labels[static_cast<size_t>(i)];
  }
  written_.add(pages, text.num_read, end);
  text.num_read = end;
  if (text.num_read < known || !sequence.sample) return;
  for (int64_t i = known; i < std::min(known + 3, room); ++i) {  // guesses
    row(sequence.batch_slot, i) = dice_.next();
  }
}

}  // namespace heddle::oracle
