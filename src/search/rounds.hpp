// Which summaries are made: those of plans that could be among the best or on the front, by the least that their layers take.
#pragma once

#include "search/finalists.hpp"

namespace plimsoll::searching {

/// The least that plans take: their layers as two small instances of a kind of block tell, however they are pipelined and sharded, and their
/// model states by count. What it says errs no further than screening_bound(kLeast).
class Least {
 public:
  /// Runs the instances of every kind of block whose states alone may fit. All outlive it.
  Least(const Screen& screen, const Space& space, const SearchRequest& request, const Layouts& layouts, Watch& watch);

  struct Of {
    double seconds = 0, bytes = 0;  ///< of a step, of the fullest rank
  };
  Of plan(std::uint32_t layout, std::uint64_t setting) const;

 private:
  struct States {
    double bytes = 0;         ///< throughout the passes
    double accumulated = 0;   ///< besides, once a first micro-batch came back
    bool every_pass = false;  ///< gradients lie there anyway: what a pass holds is its activations
    double ends = 0;          ///< seconds behind the passes: what data parallelism exchanges, what the optimizer moves
  };
  void count_states(Watch& watch);
  void number_blocks();
  void measure(Watch& watch);
  States states_of_rank(std::uint32_t layout, std::uint64_t setting) const;
  const States& states(std::uint32_t layout, std::uint64_t setting) const {
    return states_[layout * kinds_of_states_ + kind_of_states_[setting]];
  }

  const Screen& screen_;
  const Space& space_;
  const SearchRequest& request_;
  const Layouts& layouts_;
  double capacity_;
  std::vector<std::uint32_t> block_of_;      ///< by layout
  std::vector<Row> blocks_;
  std::vector<Floor> floors_;                ///< block · settings + the setting that is the core
  std::vector<std::uint32_t> kind_of_states_;  ///< by setting
  std::uint64_t kinds_of_states_ = 0;
  std::vector<States> states_;               ///< layout · kinds of states + kind
};

/// Makes summaries by rising least time, a few at a time, until no other plan can be among the best or on the front: not where those that
/// `scout` estimated are faster than it can be, and one that leaves as much memory is too.
void summarize_what_matters(Screen& screen, const Space& space, const SearchRequest& request, const Layouts& layouts, Scout& scout,
                            Watch& watch);

}  // namespace plimsoll::searching
