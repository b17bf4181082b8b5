"""What changes the catalogue of an open bandit: arms that come, go and return, attributes, named sets.

Each change is durable when its method returns, and is made whole or not at all.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Ints, Matrix, Rows, as_rows
from treetop.bandit.arm_examples import Examples, example_rows, labels_of, placed_by_examples
from treetop.bandit.arm_index import ArmId, ArmIndex, line_added, line_changed
from treetop.bandit.attributes import (
    CATEGORY_NAME,
    EXAMPLES,
    VECTORS,
    Attributes,
    AttributeTable,
    attribute_records,
    check_known,
    rows_record,
    set_record,
)
from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder, model_name
from treetop.bandit.growth import grow, grown_to, vector_columns, vector_rows
from treetop.bandit.ownership import claim_log_if_there
from treetop.bandit.snapshot import Snapshot
from treetop.bandit.state import FolderState
from treetop.bandit.vocabulary import Vocabulary
from treetop.learning.new_arm_routes import with_new_arm_routes
from treetop.log.base import Log
from treetop.model.model import Model
from treetop.tree.categories import category_path

NEIGHBOURS = 16  # arms of its category that a new one may stand beside
ADD_LOCK_TIMEOUT = 60.0  # seconds that adding arms waits for another process to finish a model


class ArmChanges:
    """The part of `Bandit` that changes its catalogue."""

    if TYPE_CHECKING:  # what `Bandit` has
        folder: BanditFolder
        config: Config
        log: Log
        snapshot: Snapshot
        vocabulary: Vocabulary
        _loading: threading.Lock
        _looked: tuple[int, ...]
        _loaded: Callable[[], tuple[FolderState, Snapshot]]
        refresh: Callable[..., bool]
        row: Callable[..., Rows]

    def add_arms(
        self,
        arms: Iterable[ArmId],
        vectors: Matrix | None = None,
        categories: Sequence[str | Sequence[str] | None] | None = None,
        attributes: Attributes | None = None,
        like: Sequence[ArmId] | None = None,
        examples: Examples | None = None,
        new: bool = False,
    ) -> None:
        """Adds arms; each has a positive chance of being shown at once. One that was removed returns, with its past.

        An arm with a vector, in the space of the contexts or, if they have one of their own, in that of the items, is
        put beside similar arms, otherwise one with a category beside those of its category; one without either goes to
        a leaf with room. `like` has for each an arm of the catalogue that it is put beside, whose vector and category
        it has where none are given. One that returns has its old place. Makes a new model, unless all of them return; a
        running refit goes on, and its model has them too.

        `examples` has for each arm a list or a matrix of contexts that it was right for, None if there are none:
        labelled rows like those that the bandit was created from. Routing leads to it by them from now on, and every
        refit learns them. An arm of which nothing else is said is put where they lead.

        An attribute that the catalogue does not have is refused, as by `set_attributes`, unless `new` is true.
        """
        listed = list(arms) if not isinstance(arms, str | bytes) else arms
        with self.folder.model_lock(ADD_LOCK_TIMEOUT):
            self.refresh()
            claim_log_if_there(self.folder, self.log)  # before arms are added to a copy that is not the log's
            state, snapshot = self._loaded()
            self._check_attributes(attributes, new)
            known = snapshot.arms
            added, back = known.split(listed)
            if not added and not back:
                return
            grown, made = known.add(added).give_back(back), None
            alike = None if like is None else _alike(known, listed, like)
            if alike is not None and categories is None and CATEGORY_NAME in snapshot.attributes.columns:
                categories = [_category(snapshot.attributes, arm) for arm in alike.tolist()]
            records = self._records(grown, listed, categories, attributes)
            place, taught = example_rows(examples, len(listed), self.vocabulary, self.row)
            found = grown.find(listed)
            base = with_all_arms(self.folder, snapshot, self.config.tree.leaf_limit)
            if len(taught):
                labels = labels_of(self.folder, self.config, base, snapshot).with_examples(taught, found[place])
                records += rows_record(EXAMPLES, found[place], taught)
            lines = line_changed(grown.changes[len(known.changes) :])
            if added:
                is_new = found >= len(known)
                if vectors is None and alike is not None and base.item_vectors is not None:
                    vectors = base.item_vectors[alike]
                rows = None if vectors is None else vector_rows(base, _rows_of(vectors, is_new))
                beside = _beside(alike, categories, is_new, snapshot.attributes, base.n_arms)
                if len(taught) and base.context_map is None:  # else items have no vectors in the space of contexts
                    mine, apart = is_new[place], np.array([bool(some) for some in beside or [[]] * len(added)])
                    rows = placed_by_examples(rows, found[place[mine]] - len(known), taught.csr()[mine], apart)
                if rows is not None:
                    records += rows_record(VECTORS, np.arange(len(known), len(grown), dtype=np.int32), rows)
                model = grow(base, len(added), self.config.tree.leaf_limit, rows, beside, grown.is_removed)
                if len(taught):
                    model = with_new_arm_routes(model, labels, snapshot.model.n_arms)
                model = replace(model, epoch=state.next_epoch)
                lines = line_added(grown.ids[len(known) :], model.epoch) + lines
                keep, logged = self.config.refit, self.log.models()
                made = self.folder.publish(model, state, keep, None, lines, records, logged=logged)
                self.folder.note("arms added", model=model_name(model.epoch), base=state.model, count=len(added))
            else:
                self.folder.extend_attributes(records, snapshot.attributes, lines)
            if back:
                self.folder.note("arms returned", model=self.folder.state().model, count=len(back))
        self.refresh(made)

    def remove_arms(self, arms: Iterable[ArmId]) -> None:
        """Removes arms: they are not shown until they are added again. Rewards for past decisions are accepted."""
        if isinstance(arms, str | bytes):
            raise TypeError(f"arms must be a list of ids, not {arms!r}")
        listed, removed = list(arms), list[int]()

        def lines(known: ArmIndex) -> bytes:
            removed.extend(known.remove(listed).changes[len(known.changes) :])
            return line_changed(removed) if removed else b""

        claim_log_if_there(self.folder, self.log)
        state, snapshot = self._loaded()
        self.folder.extend_catalogue(lines, (state.catalogue, snapshot.arms))
        if removed:
            self.folder.note("arms removed", model=self.snapshot.name, count=len(removed))
        self.refresh()

    def attributes_stale(self) -> bool:
        """Whether another process may have changed attributes; costs a system call.

        >>> import tempfile
        >>> from treetop import Bandit
        >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as here:
        ...     with Bandit.open(f"{place}/tea") as there:
        ...         there.set_attributes(["rose"], {"price": [4.5]}, new=True)
        ...     before = here.attributes_stale()
        ...     here.look_up_attributes()
        ...     before, here.attributes_stale(), here.attributes("rose")
        (True, False, {'price': 4.5})
        """
        return self.folder.signature() != self._looked

    def look_up_attributes(self) -> None:
        """Reads attributes that another process has changed, and nothing else. A decision with conditions does it."""
        with self._loading:
            signature = self.folder.signature()
            size, now = self.folder.state().attributes, self.snapshot
            if size != now.attributes.size:
                self.snapshot = now.with_attributes(self.folder.attributes(size, now.attributes))
            self._looked = signature

    def set_attributes(self, arms: Sequence[ArmId], attributes: Attributes, new: bool = False) -> None:
        """Sets attributes of arms, all of them or none: `attributes` has a list of values for each name.

        A value is true or false, a number, text, or None for no value; an attribute keeps its kind. A name that the
        catalogue does not have is refused, unless `new` says that it is to be made. Every process decides by the new
        values from its next decision with conditions on.

        >>> import tempfile
        >>> from treetop.bandit.bandit import Bandit
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", ["mint", "rose"]) as tea:
        ...     tea.set_attributes(["rose"], {"price": [4.5], "in_stock": [True]}, new=True)
        ...     tea.decide({}, where={"price": {"<=": 5}}).arms, tea.attributes("rose")
        (['rose'], {'price': 4.5, 'in_stock': True})
        """
        self.refresh()
        self._check_attributes(attributes, new)
        records = self._records(self.snapshot.arms, arms, None, attributes)
        if records:
            self.folder.extend_attributes(records, self.snapshot.attributes)
            self.refresh()

    def set_arms(self, name: str, arms: Iterable[ArmId] | None) -> None:
        """Names a set of arms, for `where={"sets": name}`; it replaces the set that had the name. None deletes it.

        >>> import tempfile
        >>> from treetop.bandit.bandit import Bandit
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", ["mint", "rose"]) as tea:
        ...     tea.set_arms("summer-sale", ["rose"])
        ...     tea.decide({}, where={"sets": "summer-sale"}).arms
        ['rose']
        """
        self.refresh()
        listed = None if arms is None else self.snapshot.arms.find(arms)
        if listed is None and name not in self.snapshot.attributes.sets:
            raise ValueError(f"there is no set {name!r}")
        self.folder.extend_attributes(set_record(name, listed), self.snapshot.attributes)
        self.refresh()

    def attributes(self, arm: ArmId) -> dict[str, bool | float | str | None]:
        """The attributes of an arm, its category among them; None where it has none.

        >>> import tempfile
        >>> from treetop.bandit.bandit import Bandit
        >>> from treetop.bandit.catalogue import Catalogue
        >>> arms = Catalogue(["mint", "rose"], categories=["tea > green", "tea > black"])
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", arms) as tea:
        ...     tea.attributes("rose")
        {'category': 'tea > black'}
        """
        snapshot = self.snapshot
        return snapshot.attributes.of(int(snapshot.arms.find([arm])[0]))

    def _check_attributes(self, attributes: Attributes | None, new: bool) -> None:
        """Raises ValueError for an attribute that the catalogue does not have, unless it may be new."""
        for name in () if new else attributes or ():
            check_known(name, self.snapshot.attributes)

    def _records(
        self, arms: ArmIndex, listed: Sequence[ArmId], categories: Sequence[Any] | None, attributes: Attributes | None
    ) -> bytes:
        """The records of attributes.bin for values of some arms, checked against what the attributes are."""
        found: Ints = arms.find(listed)
        unique, first = np.unique(found, return_index=True)
        if len(unique) < len(found):
            again = np.setdiff1d(np.arange(len(found)), first)[0]
            raise ValueError(f"arm {listed[again]!r} is listed twice")
        return attribute_records(found, categories, attributes, self.snapshot.attributes)


def with_all_arms(folder: BanditFolder, snapshot: Snapshot, max_leaf: int) -> Model:
    """The model of a snapshot, with the arms of its catalogue that it does not know, after a rollback to before they
    were added: by the vectors that they came with, else beside those of their category.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.bandit.catalogue import Catalogue
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", Catalogue(vectors=np.eye(2))) as tea:
    ...     tea.add_arms([2], vectors=[[3.0, 4.0]])
    ...     _ = tea.roll_back()
    ...     with_all_arms(tea.folder, tea.snapshot, 100).item_vectors[2]
    array([0.6, 0.8], dtype=float32)
    """
    model, table, n_arms = snapshot.model, snapshot.attributes, len(snapshot.arms)
    if model.n_arms >= n_arms:
        return model
    rows = folder.added_vectors(table, model.n_arms, n_arms, vector_columns(model))
    categories = [table.of(arm).get(CATEGORY_NAME) for arm in range(model.n_arms, n_arms)]
    beside, removed = neighbours(categories, table, model.n_arms), snapshot.arms.is_removed
    return grown_to(model, n_arms, max_leaf, rows, beside, removed)


def neighbours(categories: Sequence[Any], table: AttributeTable, n_arms: int) -> list[list[int]]:
    """For each new arm some of the first `n_arms` arms that are in its category, or in the nearest above that has any.

    >>> from treetop.bandit.attributes import CATEGORY, Column
    >>> table = AttributeTable({"category": Column.of(["tea > green", "tea > black", "jam"], CATEGORY)})
    >>> neighbours(["tea > green", "tea > white", "tools", None], table, 3)
    [[0], [1, 0], [], []]
    """
    column = table.columns.get(CATEGORY_NAME)
    if column is None:
        return [[] for _ in categories]
    order = column.order[column.order < n_arms]
    keys, paths, found = column.keys[order], column.sorted_paths, dict[tuple[str, ...], list[int]]()
    starts = keys.searchsorted(np.arange(len(paths) + 1, dtype=keys.dtype)).tolist()

    def some(path: tuple[str, ...]) -> list[int]:
        if path not in found:
            first = starts[bisect.bisect_left(paths, path)]
            last = starts[bisect.bisect_right(paths, path, key=lambda other: other[: len(path)])]
            if path and last > first:
                steps, most = NEIGHBOURS - 1, last - 1 - first
                some_of = dict.fromkeys(first + most * i // steps for i in range(NEIGHBOURS))
                found[path] = order[list(some_of)].tolist()
            else:
                found[path] = some(path[:-1]) if path else []
        return found[path]

    given = [category if isinstance(category, str) else None for category in categories]
    texts = {text: some(category_path(text)) for text in set(given)}  # many arms, few categories
    return [
        texts[text] if text is not None else some(category_path(category))
        for text, category in zip(given, categories, strict=True)
    ]


def _alike(known: ArmIndex, listed: Sequence[ArmId], like: Sequence[ArmId]) -> Ints:
    """For each arm to add the one that it is like; itself if it returns."""
    if isinstance(like, str | bytes):
        raise TypeError(f"like must be a list of ids, not {like!r}")
    if len(like) != len(listed):
        raise ValueError(f"like has {len(like)} arms for {len(listed)} new ones")
    own = [known.position(arm) for arm in listed]
    found = known.find(like)
    return np.array([there if there is not None else at for there, at in zip(own, found, strict=True)], np.int32)


def _beside(
    alike: Ints | None, categories: Sequence[Any] | None, is_new: Bools, table: AttributeTable, n_arms: int
) -> list[list[int]] | None:
    """Of each arm that is new the old ones that it belongs to; None if nobody says."""
    if alike is not None:
        return [[arm] for arm in alike[is_new].tolist()]
    if categories is None:
        return None
    return neighbours([categories[i] for i in np.flatnonzero(is_new).tolist()], table, n_arms)


def _category(table: AttributeTable, arm: int) -> str | None:
    found = table.of(arm).get(CATEGORY_NAME)
    return None if found is None else str(found)


def _rows_of(vectors: Matrix, wanted: NDArray[np.bool_]) -> Matrix:
    """The vectors of the arms that are new, of those of all that were listed."""
    rows = as_rows(vectors, what="arm vectors")
    if len(rows) != len(wanted):
        raise ValueError(f"there are {len(rows)} vectors for {len(wanted)} arms")
    return rows if wanted.all() else rows.csr()[np.flatnonzero(wanted)]
