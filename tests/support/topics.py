"""The calls that BERTopic 0.17 makes of its cluster model, by the names that it has: for where it is not installed."""

import numpy as np
from sklearn.cluster import AgglomerativeClustering


class BERTopic:
    """Topics of embeddings that need no projection."""

    def __init__(self, hdbscan_model=None, calculate_probabilities=False):
        self.hdbscan_model = hdbscan_model
        self.calculate_probabilities = calculate_probabilities

    def _is_hdbscan(self):
        try:
            import hdbscan
        except ImportError:
            return None
        return hdbscan if isinstance(self.hdbscan_model, hdbscan.HDBSCAN) else None

    def fit_transform(self, documents, embeddings):
        self.hdbscan_model.fit(embeddings, y=None)
        labels, probabilities = np.asarray(self.hdbscan_model.labels_), self.hdbscan_model.probabilities_
        self.topics_ = labels.tolist()
        if self.calculate_probabilities and (package := self._is_hdbscan()):
            probabilities = package.all_points_membership_vectors(self.hdbscan_model)
        # Topics are numbered by their sizes, and the columns with them.
        sizes = np.bincount(labels[labels >= 0])
        self._order = np.argsort(-sizes, kind="stable")
        self._topic = np.append(np.argsort(self._order), -1)
        self.topics_ = self._topic[labels].tolist()
        return self.topics_, self._mapped(probabilities)

    def _mapped(self, probabilities):
        return probabilities[:, self._order] if np.ndim(probabilities) == 2 else probabilities

    def transform(self, documents, embeddings):
        package = self._is_hdbscan()
        if package is None:
            return self._topic[self.hdbscan_model.predict(embeddings)].tolist(), None
        labels, probabilities = package.approximate_predict(self.hdbscan_model, embeddings)
        if self.calculate_probabilities:
            probabilities = package.membership_vector(self.hdbscan_model, embeddings)
        return self._topic[labels].tolist(), self._mapped(probabilities)

    def reduce_topics(self, documents, nr_topics):
        """Merge topics until `nr_topics` are left, noise among them.

        BERTopic goes by the documents' words; this goes by the topics' sizes, which no cluster model is asked for.
        """
        topics = np.asarray(self.topics_)
        sizes = np.bincount(topics[topics >= 0]).reshape(-1, 1)
        fewer = AgglomerativeClustering(min(nr_topics - 1, len(sizes))).fit_predict(sizes)
        self.topics_ = np.append(fewer, -1)[topics].tolist()
        return self
