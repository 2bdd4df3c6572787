// SPDX-License-Identifier: Apache-2.0
// Inspection: a moment of the engine as people look at it: which requests there are, how the pools
// are used, and the prefix tree, with the part of it that a given prompt would reuse.
//
// Everything is a copy of bounded size, made between two steps: nothing stops for it.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <heddle/request.h>

namespace heddle {

// Bounds of the copy.
struct InspectionOptions {
  int64_t max_requests = 100;    // the oldest ones
  int64_t max_nodes = 500;       // of the prefix tree: those on the prompt's path and the most
                                 // recently used ones, each with all nodes above it
  int64_t max_node_tokens = 24;  // the first ones of each node

  std::vector<TokenId> prompt;  // to look up in the prefix tree; empty: none
  std::string cache_namespace;  // of the prompt (Request::cache_namespace)
};

enum class RequestPhase {
  kWaiting,  // owns no memory: it has not started, or was sent back to the queue
  kPrefill,  // its prompt is being computed
  kDecode,   // draws tokens
};

struct RequestView {
  std::string id;
  RequestPhase phase = RequestPhase::kWaiting;
  std::optional<int64_t> priority;
  std::string tenant;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // of prompt and output: what is in memory
  int64_t cached_tokens = 0;    // prompt tokens that were not computed again; 0 until it starts
  int64_t output_tokens = 0;
  int64_t max_new_tokens = 0;
  int64_t num_returns = 0;  // to the queue, for want of memory or for a more urgent request
  double age_seconds = 0;   // since submit()
};

// A pool of equal pieces of memory. Free is what is left of `total`; where pools share their memory
// (MemoryPlan::shared_pool_bytes) less than that may be had.
struct PoolView {
  int64_t total = 0;
  int64_t requests = 0;    // used by requests alone
  int64_t shared = 0;      // the prefix tree's, and requests use them: they cannot be evicted
  int64_t cached = 0;      // the prefix tree's alone: evicted when there is need
  int64_t bytes_each = 0;  // over all layers; 0: not known
  int64_t evicted = 0;     // since the start; pages in tokens
};

// A node of the prefix tree: an edge of tokens. Its KV is there, whole; a recurrent state only
// where has_state says so. A node without one is a tombstone: its rows can be shared, but a
// sequence of a model with recurrent states cannot resume there.
struct PrefixNodeView {
  int64_t id = 0;      // stays the node's as long as it lives
  int64_t parent = 0;  // 0: a root, which has no entry of its own
  std::string name_space;
  int64_t begin = 0;            // tokens before the edge
  int64_t num_tokens = 0;       // of the edge
  std::vector<TokenId> tokens;  // the first ones of them
  int64_t num_children = 0;     // shown or not
  bool has_state = false;
  int64_t num_uses = 0;     // of the state: sequences that ended or resumed here
  int64_t locks = 0;        // of sequences on this node and below it, those on its state included
  int64_t state_locks = 0;  // on its state
  int64_t idle_ticks = 0;   // insertions and uses of the tree since this one's last
};

struct PrefixTreeView {
  bool needs_state = false;  // the model has recurrent states
  int64_t num_nodes = 0;     // in all, shown or not
  int64_t num_tokens = 0;
  int64_t num_states = 0;
  std::vector<PrefixNodeView> nodes;  // parents before their children
};

// The tokens that the prompt would find cached if it were submitted now.
struct PromptReuse {
  int64_t prompt_tokens = 0;
  int64_t matched_tokens = 0;  // KV rows are there this far
  int64_t reused_tokens = 0;   // need not be computed
  bool exact_repeat = false;   // not even the last token
  std::vector<int64_t> path;   // ids of the nodes it agrees with, from the root
};

struct Inspection {
  int64_t num_requests = 0;  // in all, shown or not
  std::vector<RequestView> requests;

  int32_t page_size = 0;  // tokens of a KV page
  PoolView kv_pages;
  PoolView states;        // state slots and snapshot slots; total 0: the model has none
  PoolView window_pages;  // total 0: there are none; bytes of one: of the narrowest window

  PrefixTreeView tree;
  std::optional<PromptReuse> reuse;  // of the prompt, if there was one
};

}  // namespace heddle
