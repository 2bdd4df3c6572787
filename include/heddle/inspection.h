// SPDX-License-Identifier: Apache-2.0
// Inspection: the engine's state for people to look at: the requests, the use of the memory pools,
// and the prefix tree with the part that a given prompt would reuse.
//
// All data are bounded copies, made between two steps without stopping the engine.
//
// Threading: plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <heddle/request.h>

namespace heddle {

// Limits of an inspection, and the prompt that it looks up.
struct InspectionOptions {
  int64_t max_requests = 100;    // most requests to copy, the oldest first
  int64_t max_nodes = 500;       // most nodes of the prefix tree: the prompt's path and the most
                                 // recently used ones, each with all nodes above it
  int64_t max_node_tokens = 24;  // most tokens to copy of each node, from its first

  std::vector<TokenId> prompt;  // prompt to look up in the prefix tree; empty: no look-up
  std::string cache_namespace;  // namespace of the prompt (Request::cache_namespace)
};

enum class RequestPhase {
  kWaiting,  // the request owns no memory: it has not started or was retracted
  kPrefill,  // its prompt is being computed
  kDecode,   // it draws tokens
};

struct RequestView {
  std::string id;
  RequestPhase phase = RequestPhase::kWaiting;
  std::optional<int64_t> priority;
  std::string tenant;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // prompt and output tokens whose KV and state are computed
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache; 0 until the request starts
  int64_t output_tokens = 0;
  int64_t max_new_tokens = 0;
  int64_t num_returns = 0;  // times the request was retracted, for memory or a more urgent request
  double age_seconds = 0;   // time since submit()
};

// A pool of equal pieces of memory. Free pieces are the rest of `total`; if pools share memory
// (MemoryPlan::shared_pool_bytes), fewer may be available.
struct PoolView {
  int64_t total = 0;
  int64_t requests = 0;  // pieces used by requests alone
  int64_t shared = 0;    // pieces of the prefix tree that requests use: cannot be evicted
  // Pieces of the prefix tree that no request uses: evicted when memory is needed.
  int64_t cached = 0;
  int64_t bytes_each = 0;  // bytes of a piece in all layers; 0: not known
  int64_t evicted = 0;     // pieces evicted since the start; for pages, tokens
};

// A node of the prefix tree: an edge of tokens, all of whose KV is cached. Only nodes with
// has_state have a recurrent state. At other nodes a sequence of a recurrent model can share KV
// rows but not resume.
struct PrefixNodeView {
  int64_t id = 0;      // unique among the nodes that exist at one time
  int64_t parent = 0;  // 0: the parent is a root, which is not listed
  std::string name_space;
  int64_t begin = 0;            // number of tokens before the edge
  int64_t num_tokens = 0;       // number of tokens in the edge
  std::vector<TokenId> tokens;  // first tokens of the edge, at most max_node_tokens
  int64_t num_children = 0;     // number of children, including those not listed
  bool has_state = false;
  int64_t num_uses = 0;  // number of sequences that ended or resumed at the node's state
  // Number of locks that sequences hold on this node, on nodes below it or on its state.
  int64_t locks = 0;
  int64_t state_locks = 0;  // number of locks that sequences hold on this node's state
  int64_t idle_ticks = 0;   // insertions into and uses of the tree since this node was last used
};

struct PrefixTreeView {
  bool needs_state = false;  // true: the model has recurrent states
  int64_t num_nodes = 0;     // number of nodes, including those not listed
  int64_t num_tokens = 0;
  int64_t num_states = 0;
  std::vector<PrefixNodeView> nodes;  // parents before their children
};

// The tokens that the prompt would find cached if it were submitted now.
struct PromptReuse {
  int64_t prompt_tokens = 0;
  int64_t matched_tokens = 0;  // prompt tokens whose KV rows are in the cache
  int64_t reused_tokens = 0;   // prompt tokens that would be reused
  // True: the prompt was computed before, so that not even its last token is computed.
  bool exact_repeat = false;
  std::vector<int64_t> path;  // ids of the matching nodes, from the root
};

struct Inspection {
  int64_t num_requests = 0;  // number of requests, including those not listed
  std::vector<RequestView> requests;

  int32_t page_size = 0;  // tokens per KV page
  PoolView kv_pages;
  PoolView states;  // state slots and snapshot slots; total 0: the model has no recurrent states
  PoolView window_pages;  // pages of sliding-window layers; total 0: no such pages; bytes_each: the
                          // bytes of a page of the layers with the narrowest window

  PrefixTreeView tree;
  std::optional<PromptReuse> reuse;  // reuse of the prompt; none: no prompt was to be looked up
};

}  // namespace heddle
