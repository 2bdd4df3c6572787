// SPDX-License-Identifier: Apache-2.0
// StackMachine runs an Automaton byte by byte. A grammar may be ambiguous, so it follows all
// alternatives at once: a set of places, each of which is a state, its rule's count, and the stack
// of states to return to. Stacks share their lower frames; equal stacks have the same number.
//
// Threading: thread-compatible. Cost of a byte: O(places), usually one or two.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"

namespace heddle::grammar {

class StackMachine {
 public:
  // The most places that are followed at once; a grammar that needs more is too ambiguous.
  static constexpr size_t kMaxPlaces = 256;

  using StackId = uint32_t;
  static constexpr StackId kBase = 0;  // the empty stack: the end of the outermost rule ends the
                                       // text

  struct Place {
    StackId stack = kBase;
    StateId state = 0;   // has at least one byte edge
    uint32_t count = 0;  // count of the state's rule; 0 if the rule does not count

    bool operator==(const Place&) const = default;
  };

  struct Places {
    std::vector<Place> places;
    bool ended = false;     // the text may end here
    bool too_many = false;  // there were more than kMaxPlaces, so `places` is incomplete

    // Whether no byte can follow and the text cannot end here.
    [[nodiscard]] bool is_dead() const { return places.empty() && !ended; }
  };

  explicit StackMachine(const Automaton& automaton);

  // Sets `out` to all places that result from entering `place`. With kBase and the automaton's
  // start state these are the places before the first byte.
  void start(const Place& place, Places& out);

  // Sets `out`, which must not be `from`, to the places after `byte`.
  void step(const Places& from, uint8_t byte, Places& out);

  [[nodiscard]] int32_t depth(StackId stack) const { return frames_[stack].depth; }

  // The place that follows when the rule called by the uppermost frame ends. The stack must not be
  // kBase.
  [[nodiscard]] Place return_place(StackId stack) const { return frames_[stack].place; }

  // Stacks that are made from now on can be removed with rewind(mark()).
  [[nodiscard]] size_t mark() const { return frames_.size(); }

  void rewind(size_t mark);

  // Removes stacks that no place in `kept` uses, and renumbers the others.
  void collect(std::vector<Places*> kept);

 private:
  struct Frame {
    Place place;
    int32_t depth = 0;
  };

  struct PlaceHash {
    size_t operator()(const Place& place) const {
      uint64_t hash = ((uint64_t{place.stack} << 32) | place.state) * 0x9E3779B97F4A7C15ull;
      hash ^= (hash >> 32) + place.count * 0xFF51AFD7ED558CCDull;
      return static_cast<size_t>(hash);
    }
  };

  void enter(const Place& place, Places& out);
  [[nodiscard]] StackId push(const Place& place);
  [[nodiscard]] bool may_go_on(const Place& place) const;

  const Automaton& automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<Place, StackId, PlaceHash> ids_;
  std::vector<Place> entered_;  // scratch memory of start() and step()
  std::vector<Place> pending_;
};

}  // namespace heddle::grammar
