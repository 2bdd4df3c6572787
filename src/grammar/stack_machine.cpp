// SPDX-License-Identifier: Apache-2.0
#include "grammar/stack_machine.h"

#include <algorithm>

namespace heddle::grammar {

StackMachine::StackMachine(const Automaton& automaton) : automaton_(automaton) {
  frames_.push_back({});
}

void StackMachine::start(const Place& place, Places& out) {
  out.places.clear();
  out.ended = out.too_many = false;
  entered_.clear();
  enter(place, out);
}

void StackMachine::step(const Places& from, uint8_t byte, Places& out) {
  out.places.clear();
  out.ended = false;
  out.too_many = from.too_many;
  entered_.clear();
  for (const Place& place : from.places) {
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(place.state)) {
      if (byte > edge.last) continue;
      if (byte < edge.first) break;
      if (depth(place.stack) + automaton_.height(edge.target) > Automaton::kMaxDepth) break;
      const Place next = {.stack = place.stack,
                          .state = edge.target,
                          .count = place.count + static_cast<uint32_t>(edge.counts)};
      if (!automaton_.fits(next.state, next.count)) break;
      if (automaton_.is_plain(edge.target) && from.places.size() == 1) {
        out.places.push_back(next);
      } else if (from.places.size() == 1 && place.stack == kBase &&
                 automaton_.call_edges(edge.target).empty()) {
        // The end of the outermost rule has no place to return to.
        out.ended = automaton_.ends(next.state, next.count);
        if (may_go_on(next)) out.places.push_back(next);
      } else {
        enter(next, out);
      }
      break;
    }
  }
}

// Whether a byte may follow within the rule, given its count.
bool StackMachine::may_go_on(const Place& place) const {
  const auto edges = automaton_.byte_edges(place.state);
  if (!automaton_.is_counted(place.state)) return !edges.empty();
  return std::ranges::any_of(edges, [&](const Automaton::ByteEdge& edge) {
    return automaton_.fits(edge.target, place.count + static_cast<uint32_t>(edge.counts));
  });
}

void StackMachine::enter(const Place& first, Places& out) {
  pending_.clear();
  pending_.push_back(first);
  while (!pending_.empty()) {
    const Place place = pending_.back();
    pending_.pop_back();
    if (std::ranges::find(entered_, place) != entered_.end()) continue;
    if (entered_.size() >= kMaxPlaces) {
      out.too_many = true;
      return;
    }
    entered_.push_back(place);
    if (may_go_on(place)) out.places.push_back(place);
    for (const Automaton::CallEdge& call : automaton_.call_edges(place.state)) {
      if (!automaton_.fits(call.target, place.count)) continue;
      const bool is_tail = automaton_.ends(call.target, place.count) &&
                           automaton_.byte_edges(call.target).empty() &&
                           automaton_.call_edges(call.target).empty();
      const int32_t needed = std::max(automaton_.height(call.begin) + (is_tail ? 0 : 1),
                                      automaton_.height(call.target));
      if (depth(place.stack) + needed > Automaton::kMaxDepth) continue;
      const StackId stack =
          is_tail ? place.stack
                  : push({.stack = place.stack, .state = call.target, .count = place.count});
      pending_.push_back({.stack = stack, .state = call.begin});
    }
    if (!automaton_.ends(place.state, place.count)) continue;
    if (place.stack == kBase) {
      out.ended = true;
    } else {
      pending_.push_back(return_place(place.stack));
    }
  }
}

StackMachine::StackId StackMachine::push(const Place& place) {
  const auto [entry, is_new] = ids_.try_emplace(place, static_cast<StackId>(frames_.size()));
  if (is_new) frames_.push_back({.place = place, .depth = depth(place.stack) + 1});
  return entry->second;
}

void StackMachine::rewind(size_t mark) {
  while (frames_.size() > mark) {
    ids_.erase(frames_.back().place);
    frames_.pop_back();
  }
}

void StackMachine::collect(std::vector<Places*> kept) {
  std::vector<bool> is_used(frames_.size());
  is_used[kBase] = true;
  for (const Places* places : kept) {
    for (const Place& place : places->places) {
      for (StackId stack = place.stack; !is_used[stack]; stack = frames_[stack].place.stack) {
        is_used[stack] = true;
      }
    }
  }
  std::vector<StackId> new_ids(frames_.size());
  std::vector<Frame> frames;
  ids_.clear();
  // The number of a parent frame is smaller than those of its children.
  for (StackId stack = 0; stack < frames_.size(); ++stack) {
    if (!is_used[stack]) continue;
    new_ids[stack] = static_cast<StackId>(frames.size());
    Frame frame = frames_[stack];
    frame.place.stack = new_ids[frame.place.stack];
    if (stack != kBase) ids_.emplace(frame.place, new_ids[stack]);
    frames.push_back(frame);
  }
  frames_ = std::move(frames);
  for (Places* places : kept) {
    for (Place& place : places->places) place.stack = new_ids[place.stack];
  }
}

}  // namespace heddle::grammar
