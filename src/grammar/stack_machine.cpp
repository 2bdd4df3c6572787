// SPDX-License-Identifier: Apache-2.0
#include "grammar/stack_machine.h"

#include <algorithm>

namespace heddle::grammar {

StackMachine::StackMachine(const Automaton& automaton) : automaton_(automaton) {
  frames_.push_back({});
}

void StackMachine::start(StackId stack, StateId state, Places& out) {
  out.places.clear();
  out.ended = out.too_many = false;
  entered_.clear();
  enter(stack, state, out);
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
      if (automaton_.is_plain(edge.target) && from.places.size() == 1) {
        out.places.push_back({.stack = place.stack, .state = edge.target});
      } else {
        enter(place.stack, edge.target, out);
      }
      break;
    }
  }
}

void StackMachine::enter(StackId stack, StateId state, Places& out) {
  pending_.clear();
  pending_.push_back({.stack = stack, .state = state});
  while (!pending_.empty()) {
    const Place place = pending_.back();
    pending_.pop_back();
    if (std::ranges::find(entered_, place) != entered_.end()) continue;
    if (entered_.size() >= kMaxPlaces) {
      out.too_many = true;
      return;
    }
    entered_.push_back(place);
    if (!automaton_.byte_edges(place.state).empty()) out.places.push_back(place);
    for (const Automaton::CallEdge& call : automaton_.call_edges(place.state)) {
      const bool is_tail = automaton_.is_final(call.target) &&
                           automaton_.byte_edges(call.target).empty() &&
                           automaton_.call_edges(call.target).empty();
      const int32_t needed = std::max(automaton_.height(call.begin) + (is_tail ? 0 : 1),
                                      automaton_.height(call.target));
      if (depth(place.stack) + needed > Automaton::kMaxDepth) continue;
      pending_.push_back(
          {.stack = is_tail ? place.stack : push(place.stack, call.target), .state = call.begin});
    }
    if (!automaton_.is_final(place.state)) continue;
    if (place.stack == kBase) {
      out.ended = true;
    } else {
      pending_.push_back({.stack = parent(place.stack), .state = return_state(place.stack)});
    }
  }
}

StackMachine::StackId StackMachine::push(StackId parent, StateId state) {
  const auto [entry, is_new] =
      ids_.try_emplace(key(parent, state), static_cast<StackId>(frames_.size()));
  if (is_new) {
    frames_.push_back({.parent = parent, .state = state, .depth = frames_[parent].depth + 1});
  }
  return entry->second;
}

void StackMachine::rewind(size_t mark) {
  while (frames_.size() > mark) {
    ids_.erase(key(frames_.back().parent, frames_.back().state));
    frames_.pop_back();
  }
}

void StackMachine::collect(std::vector<Places*> kept) {
  std::vector<bool> is_used(frames_.size());
  is_used[kBase] = true;
  for (const Places* places : kept) {
    for (const Place& place : places->places) {
      for (StackId stack = place.stack; !is_used[stack]; stack = parent(stack)) {
        is_used[stack] = true;
      }
    }
  }
  std::vector<StackId> new_ids(frames_.size());
  std::vector<Frame> frames;
  ids_.clear();
  // A parent has a smaller number than its children.
  for (StackId stack = 0; stack < frames_.size(); ++stack) {
    if (!is_used[stack]) continue;
    new_ids[stack] = static_cast<StackId>(frames.size());
    Frame frame = frames_[stack];
    frame.parent = new_ids[frame.parent];
    if (stack != kBase) ids_.emplace(key(frame.parent, frame.state), new_ids[stack]);
    frames.push_back(frame);
  }
  frames_ = std::move(frames);
  for (Places* places : kept) {
    for (Place& place : places->places) place.stack = new_ids[place.stack];
  }
}

}  // namespace heddle::grammar
