// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/standalone_maker.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "ops/rope/rope.h"
#include "sampling/sampler.h"
#include "speculative/draft_limits.h"

namespace heddle::runner {

namespace {

using request::PlannedSequence;
using request::SampledToken;

models::CacheNeeds states_alone(models::CacheNeeds needs) {
  needs.page_groups.clear();
  needs.kv_layers.clear();
  needs.kv_modules.clear();
  return needs;
}

}  // namespace

Result<std::unique_ptr<StandaloneMaker>> StandaloneMaker::create(std::unique_ptr<ForwardPass> pass,
                                                                 const cache::PoolSizes& sizes,
                                                                 int64_t max_drafts,
                                                                 int64_t vocab_size,
                                                                 int64_t max_pages) {
  std::unique_ptr<StandaloneMaker> maker(
      new StandaloneMaker(std::move(pass), sizes, vocab_size, max_pages));
  ForwardPass& small = *maker->pass_;
  HEDDLE_ASSIGN_OR_RETURN(maker->greedy_tokens_,
                          GreedyTokens::create(small.device(), small.stream(), max_drafts,
                                               small.max_logit_rows(), small.config().vocab_size));
  if (!maker->greedy_tokens_->known_at_once()) maker->feed_.emplace(small.device(), max_drafts);
  if (small.cache_needs().state_layers.empty()) return maker;
  const int64_t max_sequences = std::ssize(maker->texts_);
  const cache::PoolSizes states{
      .num_pages = 0,
      .page_size = sizes.page_size,
      .num_state_slots = max_sequences + speculative::num_guess_states(max_sequences)};
  HEDDLE_ASSIGN_OR_RETURN(
      maker->states_,
      Pools::create(small.device(), states_alone(small.cache_needs()), {.sizes = states}));
  return maker;
}

StandaloneMaker::StandaloneMaker(std::unique_ptr<ForwardPass> pass, const cache::PoolSizes& sizes,
                                 int64_t vocab_size, int64_t max_pages)
    : pass_(std::move(pass)),
      written_(sizes.num_pages, sizes.page_size, sizes.max_sequences),
      page_size_(sizes.page_size),
      max_pages_(max_pages),
      max_tokens_(std::min(max_pages * sizes.page_size, pass_->config().max_position_embeddings)),
      vocab_size_(std::min(vocab_size, pass_->config().vocab_size)),
      texts_(static_cast<size_t>(sizes.max_sequences)),
      streams_(texts_.size()),
      claimed_(static_cast<size_t>(sizes.num_pages + 1), 0),
      page_table_(texts_.size() * static_cast<size_t>(max_pages)) {
  unread_.reserve(texts_.size());
  rows_.reserve(texts_.size());
  going_on_.reserve(texts_.size());
}

Status StandaloneMaker::finish(const DraftedStep& step, KeptDrafts&, request::StepOutput& output) {
  note(step);
  if (!step.plan.computes_draft_slots) return {};
  HEDDLE_RETURN_IF_ERROR(zero_states());
  HEDDLE_RETURN_IF_ERROR(read(step, output));
  HEDDLE_RETURN_IF_ERROR(guess_on(step.pools, output));
  return list(output);
}

// Records the tokens that the step's sequences have read and drawn.
void StandaloneMaker::note(const DraftedStep& step) {
  written_.take(step.plan);
  for (const request::SlotStart& one : step.plan.starts) start(step, one);
  num_streams_ = 0;
  for (const StepSequence& sequence : step.sequences) {
    const PlannedSequence& planned = *sequence.planned;
    const std::span<const SampledToken> drawn = step.drawn(sequence);
    const bool has_ended =
        sequence.part == StepSequence::Part::kSkipped || (planned.sample && drawn.empty());
    if (has_ended) continue;
    Text& text = this->text(sequence);
    int64_t position = planned.context_tokens;
    for (const TokenId token : step.plan.new_tokens(planned)) add(text, position++, token);
    position = sequence.draw_position();
    for (const SampledToken& token : drawn) {
      if (token.error.ok()) add(text, position++, token.token);
    }
    if (drawn.empty() || planned.wanted_drafts == 0 || !drawn.back().error.ok() ||
        std::ranges::binary_search(sequence.slot->ending_tokens, drawn.back().token)) {
      continue;
    }
    Stream& stream = streams_[num_streams_++];
    stream.sequence = &sequence;
    stream.places.clear();
  }
}

// A text begins with its context. Its rows that are in the pages already are used, unless states
// are needed.
void StandaloneMaker::start(const DraftedStep& step, const request::SlotStart& start) {
  const std::span<const TokenId> context = step.plan.context_of(start);
  const std::span<const int32_t> pages = step.slots[start.batch_slot].pages[0].ids;
  Text& text = texts_[static_cast<size_t>(start.batch_slot)];
  text.end = max_tokens_;
  text.state_is_old = true;
  text.unread.clear();
  const int64_t written = states_ ? 0 : written_.count(pages);
  text.num_read = std::min(written, std::ssize(context));
  int64_t position = text.num_read;
  for (const TokenId token : context.subspan(static_cast<size_t>(position))) {
    add(text, position++, token);
  }
}

// A token may be known already: a step feeds the token that an earlier one drew. After a failed
// step tokens may be missing: then nothing more of the text is read.
void StandaloneMaker::add(Text& text, int64_t position, TokenId token) const {
  if (position > text.num_known()) text.end = std::min(text.end, text.num_known());
  if (position != text.num_known()) return;
  if (token >= pass_->config().vocab_size) text.end = std::min(text.end, position);
  text.unread.push_back(token);
}

Status StandaloneMaker::zero_states() {
  if (!states_) return {};
  fresh_states_.clear();
  for (int32_t slot = 0; slot < std::ssize(texts_); ++slot) {
    if (std::exchange(texts_[static_cast<size_t>(slot)].state_is_old, false)) {
      fresh_states_.push_back({.kind = request::MoveKind::kZero, .to = state_of(slot)});
    }
  }
  return states_->begin_step(pass_->stream(), pass_->context(), fresh_states_);
}

// Lists the unread tokens of the step's prompts and streams. Returns whether some sequence has more
// of them than the step computed for it.
bool StandaloneMaker::list_unread(std::span<const StepSequence> sequences) {
  unread_.clear();
  bool more = false;
  size_t next_stream = 0;
  for (const StepSequence& sequence : sequences) {
    const PlannedSequence& planned = *sequence.planned;
    Stream* stream = nullptr;
    if (next_stream < num_streams_ && streams_[next_stream].sequence == &sequence) {
      stream = &streams_[next_stream++];
    }
    const bool is_prompt = !planned.sample || planned.new_tokens.count > 1;
    if (!is_prompt && stream == nullptr) continue;
    Text& text = this->text(sequence);
    pass_over_written(text, sequence.slot->pages[0].ids);
    more |= std::ssize(text.unread) > planned.num_rows() + 1;
    unread_.push_back({.sequence = &sequence,
                       .position = text.num_read,
                       .tokens = text.unread,
                       .kv_tokens = 0,
                       .state_slot = states_ ? state_of(planned.batch_slot) : 0,
                       .stream = stream});
  }
  std::ranges::sort(unread_, {}, [](const Rows& rows) {
    return std::pair(rows.tokens.size(), rows.sequence->planned->batch_slot);
  });
  return more;
}

// Skips tokens whose rows other texts have written meanwhile, unless states are needed. The last
// token is always read, because a draft follows from it.
void StandaloneMaker::pass_over_written(Text& text, std::span<const int32_t> pages) const {
  if (states_ || text.unread.empty()) return;
  const int64_t written = std::min(written_.count(pages, text.num_read), text.num_known() - 1);
  text.unread.erase(text.unread.begin(), text.unread.begin() + (written - text.num_read));
  text.num_read = written;
}

// Lays out as much of the unread tokens as one step of the pass can compute.
void StandaloneMaker::lay_out_unread() {
  rows_.clear();
  ++num_reads_;
  int64_t left = pass_->max_step_tokens();
  for (Rows rows : unread_) {
    const std::span<const int32_t> pages = rows.sequence->slot->pages[0].ids;
    const int64_t known = std::ssize(rows.tokens);
    const int64_t end = std::min(text(*rows.sequence).end, room(*rows.sequence->slot));
    int64_t count = std::min({known, end - rows.position, left});
    if (count <= 0) continue;
    rows.kv_tokens = written_.count(pages, rows.position);
    count = written_.unwritten_end(pages, rows.kv_tokens, rows.position + count) - rows.position;
    rows.kv_tokens = std::min(rows.kv_tokens, rows.position + count);
    if (!claim_pages(pages, rows.kv_tokens, rows.position + count)) continue;
    rows.tokens = rows.tokens.first(static_cast<size_t>(count));
    if (count < known) rows.stream = nullptr;
    rows_.push_back(rows);
    left -= count;
  }
}

// Claims for one text the pages that this read writes. Returns false if another text of the same
// read has claimed them, because both begin with a cached prefix that was never read. Its rows are
// there in the next step.
bool StandaloneMaker::claim_pages(std::span<const int32_t> pages, int64_t begin, int64_t end) {
  if (begin == end) return true;
  const auto written =
      pages.subspan(static_cast<size_t>(begin / page_size_),
                    static_cast<size_t>((end - 1) / page_size_ - begin / page_size_ + 1));
  const auto claim_of = [this](int32_t page) -> int64_t& {
    return claimed_[static_cast<size_t>(page)];
  };
  const bool is_free =
      std::ranges::none_of(written, [&](int32_t page) { return claim_of(page) == num_reads_; });
  if (is_free) {
    for (const int32_t page : written) claim_of(page) = num_reads_;
  }
  return is_free;
}

Status StandaloneMaker::read(const DraftedStep& step, request::StepOutput& output) {
  going_on_.clear();
  greedy_tokens_->begin();
  const bool reads_up = list_unread(step.sequences);
  lay_out_unread();
  if (rows_.empty()) return {};
  output.warms_up |= reads_up;  // reading takes longer than a typical decode step
  HEDDLE_RETURN_IF_ERROR(run(step.pools, output, nullptr));
  for (const Rows& rows : rows_) {
    Text& text = this->text(*rows.sequence);
    const auto count = std::ssize(rows.tokens);
    written_.add(rows.sequence->slot->pages[0].ids, text.num_read, text.num_read + count);
    text.unread.erase(text.unread.begin(), text.unread.begin() + count);
    text.num_read += count;
  }
  return {};
}

// Makes the other drafts, on copies of the states.
Status StandaloneMaker::guess_on(const Pools& pools, request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(copy_states());
  while (!going_on_.empty()) {
    rows_.clear();
    for (Stream* stream : going_on_) {
      const StepSequence& sequence = *stream->sequence;
      const int64_t position = text(sequence).num_read + std::ssize(stream->places) - 1;
      if (position >= room(*sequence.slot)) continue;
      rows_.push_back({.sequence = &sequence,
                       .position = position,
                       .tokens = std::span(&stream->last_draft, 1),
                       .kv_tokens = position,
                       .state_slot = stream->guess_state,
                       .stream = stream});
    }
    going_on_.clear();
    if (rows_.empty()) break;
    if (feed_) feed_->begin(std::ssize(rows_), greedy_tokens_->last_drawn());
    for (int32_t row = 0; feed_ && row < std::ssize(rows_); ++row) {
      const int32_t from = rows_[static_cast<size_t>(row)].stream->row;
      feed_->add({.row = row, .sequence = row, .logit_row = row, .from = from}, {});
    }
    HEDDLE_RETURN_IF_ERROR(run(pools, output, feed_ ? &*feed_ : nullptr));
  }
  return {};
}

Status StandaloneMaker::copy_states() {
  if (!states_ || going_on_.empty()) return {};
  const auto first = static_cast<int32_t>(std::ssize(texts_)) + 1;
  const int64_t most = speculative::num_guess_states(std::ssize(texts_));
  if (std::ssize(going_on_) > most) going_on_.resize(static_cast<size_t>(most));
  copies_.clear();
  for (Stream* stream : going_on_) {
    stream->guess_state = first + static_cast<int32_t>(copies_.size());
    copies_.push_back(
        {.from = state_of(stream->sequence->planned->batch_slot), .to = stream->guess_state});
  }
  return states_->start_drafts(pass_->stream(), pass_->context(), copies_);
}

// Number of a sequence's tokens for which the small model has room to write KV.
int64_t StandaloneMaker::room(const request::BatchSlot& slot) const {
  return std::min(std::ssize(slot.pages[0].ids) * page_size_, max_tokens_);
}

// Runs a step of the pass over rows_: adds a draft to their streams, and lists in going_on_ the
// streams that want another one. If only the device knows the drafts so far, `feed` supplies them.
Status StandaloneMaker::run(const Pools& pools, request::StepOutput& output, DrawnFeed* feed) {
  ids_.clear();
  positions_.clear();
  context_lens_.clear();
  kv_lens_.clear();
  state_slots_.clear();
  logit_rows_.clear();
  query_start_.assign(1, 0);
  for (size_t b = 0; b < rows_.size(); ++b) {
    const Rows& rows = rows_[b];
    for (size_t i = 0; i < rows.tokens.size(); ++i) {
      ids_.push_back(rows.tokens[i]);
      positions_.push_back(ops::rope_position(rows.position + static_cast<int64_t>(i),
                                              rows.sequence->planned->takes_long_rope));
    }
    query_start_.push_back(static_cast<int32_t>(ids_.size()));
    context_lens_.push_back(static_cast<int32_t>(rows.position));
    kv_lens_.push_back(static_cast<int32_t>(rows.kv_tokens));
    state_slots_.push_back(rows.state_slot);
    if (rows.stream != nullptr) logit_rows_.push_back(static_cast<int32_t>(ids_.size()) - 1);
    const std::vector<int32_t>& pages = rows.sequence->slot->pages[0].ids;
    std::copy_n(pages.begin(), std::min(std::ssize(pages), max_pages_),
                page_table_.begin() + static_cast<int64_t>(b) * max_pages_);
  }
  HEDDLE_RETURN_IF_ERROR(pass_->enqueue(
      ids_, positions_,
      {.query_start = query_start_,
       .context_lens = context_lens_,
       .kv_lens = kv_lens_,
       .page_tables = {page_table_},
       .page_table_width = max_pages_,
       .page_size = page_size_,
       .state_slots = state_slots_,
       .logit_rows = logit_rows_,
       .kv_layers = pools.draft_kv_layers(),
       .state_layers = states_ ? states_->state_layers() : std::span<const ops::StateLayer>()},
      feed));
  output.warms_up |= pass_->warmed_up();
  HEDDLE_RETURN_IF_ERROR(greedy_tokens_->choose(pass_->context(), pass_->stream(),
                                                pass_->device_logits(), std::ssize(logit_rows_)));
  int32_t row = 0;
  for (const Rows& rows : rows_) {
    if (rows.stream == nullptr) continue;
    Stream& stream = *rows.stream;
    stream.row = row++;
    stream.places.push_back(greedy_tokens_->place(greedy_tokens_->num_steps() - 1, stream.row));
    if (greedy_tokens_->known_at_once()) {
      stream.last_draft = greedy_tokens_->token(stream.places.back());
    }
    const bool goes_on = !greedy_tokens_->known_at_once() || is_draft(stream.last_draft);
    if (goes_on && std::ssize(stream.places) < stream.sequence->planned->wanted_drafts)
      going_on_.push_back(&stream);
  }
  return {};
}

// Adds the drafts of all streams to the output.
Status StandaloneMaker::list(request::StepOutput& output) {
  HEDDLE_RETURN_IF_ERROR(greedy_tokens_->fetch(pass_->stream()));
  HEDDLE_RETURN_IF_ERROR(pass_->stream().synchronize());
  for (const Stream& stream : std::span(streams_).first(num_streams_)) {
    int32_t parent = -1;
    for (const int32_t place : stream.places) {
      const TokenId draft = greedy_tokens_->token(place);
      if (!is_draft(draft)) break;
      output.drafts.push_back({.sequence_id = stream.sequence->planned->sequence_id,
                               .token = draft,
                               .parent = parent++});
    }
  }
  return {};
}

// Whether the model can draw this token too.
bool StandaloneMaker::is_draft(TokenId token) const {
  return token != sampling::kNoToken && token < vocab_size_;
}

}  // namespace heddle::runner
