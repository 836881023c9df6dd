"""The planner's problem as a mixed-integer program for HiGHS (PyPI highspy), and a plain evaluator of plans. Shares nothing with planner/.

The formulation is a strong one, so that the comparison is fair: one variable per reader and mechanism, linked to the window's choice; the
"any of these readers" of a shared element as nested variables, one per distinct set of readers; only slots that can be too full are rows.
"""

import time

import highspy
import numpy as np


def evaluate(problem, replay, mechanism):
    """-> (time in ns, peak in pages) of a plan, in exact integers."""
    change = [0] * (len(problem["base"]) + 1)

    def add(begin, end, pages):
        change[begin] += pages
        change[end] -= pages

    spent = 0
    for it, again in zip(problem["instances"], replay):
        forward_begin, forward_end, replay_begin, replay_end = it["events"]
        if again:
            spent += it["replay_ns"]
            add(replay_begin, replay_end, it["transient"])
        else:
            add(forward_end, replay_end, it["keep"])
    for window, m in zip(problem["windows"], mechanism):
        how = window["mechanisms"][m]
        for reader, (ns, pages) in zip(window["readers"], how["costs"]):
            if replay[reader]:
                spent += ns
                add(*problem["instances"][reader]["events"][2:], pages)
        for element in how["elements"]:
            users = [(b, e) for i, b, e in element["uses"] if replay[i]]
            if users:
                spent += element["capture_ns"]
                alive = set()
                for b, e in users:
                    alive.update(range(b, e))
                for t in alive:
                    add(t, t + 1, element["pages"])
    used = np.cumsum(np.array(change[:-1], dtype=np.int64)) + np.array(problem["base"], dtype=np.int64)
    return spent, int(used.max())


def possible_slots(problem):
    """Slots that some plan could fill beyond the budget."""
    slots = len(problem["base"])
    change = np.zeros(slots + 1, dtype=np.int64)

    def add(begin, end, pages):
        change[begin] += pages
        change[end] -= pages

    for it in problem["instances"]:
        _, forward_end, replay_begin, replay_end = it["events"]
        add(forward_end, replay_end, it["keep"])
        add(replay_begin, replay_end, max(0, it["transient"] - it["keep"]) if replay_begin >= forward_end else it["transient"])
    for window in problem["windows"]:
        for how in window["mechanisms"]:
            for reader, (_, pages) in zip(window["readers"], how["costs"]):
                add(*problem["instances"][reader]["events"][2:], pages)
            for element in how["elements"]:
                alive = np.zeros(slots + 1, dtype=np.int64)
                for _, b, e in element["uses"]:
                    alive[b:e] = 1
                change[1:] += element["pages"] * (alive[1:] - alive[:-1])
                change[0] += element["pages"] * alive[0]
    most = np.cumsum(change)[:-1] + np.array(problem["base"], dtype=np.int64)
    return [int(t) for t in np.nonzero(most > problem["budget"])[0]]


class Model:
    def __init__(self, problem):
        self.problem = problem
        self.slots = possible_slots(problem)
        self.cost, self.integer, self.rows = [], [], []
        self.memory = {t: {} for t in self.slots}
        self.constant = dict.fromkeys(self.slots, 0)
        self.x = [self.variable(it["replay_ns"], True) for it in problem["instances"]]
        for it, x in zip(problem["instances"], self.x):
            _, forward_end, replay_begin, replay_end = it["events"]
            for t in self.within(forward_end, replay_end):
                self.constant[t] += it["keep"]
                self.use(t, x, -it["keep"])
            for t in self.within(replay_begin, replay_end):
                self.use(t, x, it["transient"])
        self.choice, self.used = [], []
        for window in problem["windows"]:
            self.window(window)
        infinity = highspy.kHighsInf
        for t in self.slots:
            self.rows.append((-infinity, problem["budget"] - problem["base"][t] - self.constant[t], list(self.memory[t].items())))

    def variable(self, cost, integer):
        self.cost.append(cost)
        self.integer.append(integer)
        return len(self.cost) - 1

    def within(self, begin, end):
        return [t for t in self.slots if begin <= t < end]

    def use(self, slot, variable, pages):
        row = self.memory[slot]
        row[variable] = row.get(variable, 0) + pages

    def window(self, window):
        infinity, readers = highspy.kHighsInf, window["readers"]
        only = len(window["mechanisms"]) == 1
        chosen = [] if only else [self.variable(0, True) for _ in window["mechanisms"]]
        if chosen:
            self.rows.append((1, 1, [(c, 1) for c in chosen]))
        every = []
        for m, how in enumerate(window["mechanisms"]):
            u = {i: self.x[i] if only else self.variable(0, False) for i in readers}
            every.append(u)
            for i, (ns, pages) in zip(readers, how["costs"]):
                self.cost[u[i]] += ns
                for t in self.within(*self.problem["instances"][i]["events"][2:]):
                    self.use(t, u[i], pages)
                if chosen:
                    self.rows.append((-infinity, 0, [(u[i], 1), (chosen[m], -1)]))
            for element in how["elements"]:
                self.element(element, u)
        if chosen:
            for i in readers:
                self.rows.append((0, 0, [(self.x[i], 1)] + [(u[i], -1) for u in every]))
        self.choice.append(chosen)

    def element(self, element, u):
        """Variables for 'any of these readers is replayed', one per distinct set, the larger built on the smaller."""
        groups = {}
        for t in self.slots:
            cover = frozenset(i for i, b, e in element["uses"] if b <= t < e)
            if cover:
                groups.setdefault(cover, []).append(t)
        everyone = frozenset(i for i, _, _ in element["uses"])
        if element["capture_ns"] and everyone:
            groups.setdefault(everyone, [])
        anyone = {}
        for cover in sorted(groups, key=lambda c: (len(c), sorted(c))):
            if len(cover) == 1:
                z = u[next(iter(cover))]
            else:
                z, rest = self.variable(0, False), set(cover)
                for smaller in sorted((c for c in anyone if c < cover and len(c) > 1), key=lambda c: (-len(c), sorted(c))):
                    if smaller <= rest:
                        self.rows.append((0, highspy.kHighsInf, [(z, 1), (anyone[smaller], -1)]))
                        rest -= smaller
                for i in sorted(rest):
                    self.rows.append((0, highspy.kHighsInf, [(z, 1), (u[i], -1)]))
            anyone[cover] = z
            for t in groups[cover]:
                self.use(t, z, element["pages"])
        if element["capture_ns"] and everyone:
            self.cost[anyone[everyone]] += element["capture_ns"]

    def solve(self, seconds):
        """-> dict: status (optimal, infeasible, open), objective, bound, cpu_seconds, plan (replay, mechanism) or None."""
        columns, count = len(self.cost), len(self.rows)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = columns, count
        program.col_cost_ = np.array(self.cost, float)
        program.col_lower_, program.col_upper_ = np.zeros(columns), np.ones(columns)
        kinds = highspy.HighsVarType
        program.integrality_ = [kinds.kInteger if i else kinds.kContinuous for i in self.integer]
        program.row_lower_ = np.array([low for low, _, _ in self.rows], float)
        program.row_upper_ = np.array([high for _, high, _ in self.rows], float)
        start, index, value = [0], [], []
        for _, _, entries in self.rows:
            for variable, factor in entries:
                index.append(variable)
                value.append(float(factor))
            start.append(len(index))
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_, program.a_matrix_.index_, program.a_matrix_.value_ = np.array(start), np.array(index), np.array(value)
        solver = highspy.Highs()
        for option, setting in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.5), ("time_limit", seconds)):
            solver.setOptionValue(option, setting)
        solver.passModel(program)
        began = time.process_time()
        solver.run()
        spent = time.process_time() - began
        status = solver.getModelStatus()
        info = solver.getInfo()
        names = highspy.HighsModelStatus
        out = {"status": "open", "cpu_seconds": spent, "objective": None, "bound": info.mip_dual_bound, "plan": None}
        if status == names.kInfeasible:
            out["status"] = "infeasible"
        elif status == names.kOptimal:
            out["status"] = "optimal"
        if abs(info.objective_function_value) < highspy.kHighsInf:  # there is a solution
            out["objective"] = info.objective_function_value
            solution = solver.getSolution().col_value
            replay = [int(solution[x] > 0.5) for x in self.x]
            mechanism = [max(range(len(c)), key=lambda m, c=c: solution[c[m]]) if c else 0 for c in self.choice]
            out["plan"] = (replay, mechanism)
        return out
